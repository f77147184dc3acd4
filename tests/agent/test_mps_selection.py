"""Which MPS a partition gets, and what is said where it cannot have what it asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from partita.agent.gpu.nvml import GPUIdentity
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.selection import MPSSelection
from partita.models.gpu_server import GPUServerSpec

A100 = GPUIdentity(
    "GPU-1", "A100", "Ampere", 40 << 30, 108, 0, (8, 0), mig=False, vgpu=False, driver="610.10"
)
V2 = MPSReport(daemon=7, protocol=2, no_protocol_3=True)


def selection(*, user_namespaces: bool = False, **spec: Any) -> MPSSelection:
    return MPSSelection(GPUServerSpec.model_validate({"partition": "p", **spec}), user_namespaces)


@pytest.mark.parametrize(
    ("protocol", "user_namespaces", "newest"),
    [("Auto", False, 2), ("Auto", True, 3), (2, True, 2), (3, False, 3)],
)
def test_auto_takes_protocol_3_only_where_pods_of_root_can_use_it(
    protocol: str | int, newest: int, *, user_namespaces: bool
):
    made = selection(protocol=protocol, user_namespaces=user_namespaces)
    assert made.newest_protocol == newest


def test_a_protocol_that_does_not_work_is_a_problem_only_if_it_is_required():
    assert selection(protocol="Auto").problem(V2) is None
    problem = selection(protocol=3).problem(V2)
    assert problem is not None
    assert problem.reason == "MPSProtocol3NotSupported"
    assert "install driver r615 or later" in problem.message


@pytest.mark.parametrize(
    ("spec", "report", "reasons"),
    [
        ({}, None, ["MPSStarting", "Supported"]),
        ({"protocol": 3}, V2, ["NotSupported", "Supported"]),
        ({"protocol": "Auto"}, MPSReport(7, 2), ["NoUserNamespaces", "Supported"]),
        ({"protocol": 2}, MPSReport(7, 2), ["NotRequested", "Supported"]),
        ({"protocol": 3}, MPSReport(7, 3), ["InUse", "Supported"]),
        ({"isolation": "StaticSM"}, MPSReport(7, 3), ["InUse", "InUse"]),
    ],
)
def test_the_conditions_say_what_the_gpu_could_have(
    spec: dict[str, Any], report: MPSReport | None, reasons: list[str]
):
    found = selection(**spec).conditions(report, A100)
    assert [condition.reason for condition in found] == reasons


def test_static_sms_need_a_newer_driver():
    _, static_sm = selection(isolation="StaticSM").conditions(V2, replace(A100, driver="580.95.05"))
    assert (static_sm.status, static_sm.reason) == ("False", "NotSupported")


def test_a_daemon_that_serves_one_user_at_a_time_says_what_is_lost():
    *_, lost = selection().conditions(MPSReport(7, 2, single_user=True), A100)
    assert (lost.type, lost.status) == ("MPSMultiUser", "False")
    assert "others wait, or fail" in lost.message
    assert "securityContext.runAsUser" in lost.message
