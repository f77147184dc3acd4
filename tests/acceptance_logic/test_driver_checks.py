"""The checks that need only the driver, on a fake GPU that behaves well, or on purpose does not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.bench import Bench
from acceptance.checks.driver_limits import DRIVER_LIMITS
from acceptance.checks.kills import KILLS
from acceptance.checks.lifecycle import CONFIGURATION
from acceptance.checks.many_clients import CLIENT_LIMIT
from acceptance.checks.sm_fault import SM_FAULTS
from acceptance.results import Check, Outcome, Result
from acceptance.session import run_check
from gpu.fake import FakeGPUs

KILL_V2, TERMINATE_V2, _, TERMINATE_V3 = KILLS
_, PARTITIONS, SM_FAULT_V3, PARTITIONS_V3 = SM_FAULTS


def new_driver(bench: Bench, gpus: FakeGPUs) -> None:
    gpus.install_driver("615.71.09", cuda=13040)
    bench.driver, bench.cuda = "615.71.09", 13040


def plain_cgroups(bench: Bench, gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks use the fake node's cgroups, which are plain folders."""
    tree = gpus.mount_cgroups()

    @contextlib.contextmanager
    def own() -> Iterator[Path]:
        folder = tree.make("acceptance")
        try:
            yield folder
        finally:
            tree.remove(folder)

    def leaf(parent: Path, name: str) -> Path:
        return tree.make(str((parent / name).relative_to(tree.root)))

    module = "acceptance.checks.driver_limits"
    monkeypatch.setattr(f"{module}.own_cgroup", own)
    monkeypatch.setattr(f"{module}.leaf", leaf)
    monkeypatch.setattr(f"{module}.remove", tree.remove)
    bench.cgroups = tree.root
    monkeypatch.setattr("acceptance.requirements.os.getuid", lambda: 0)


def outcome(result: Result) -> tuple[Outcome, str]:
    return result.outcome, result.reason


def test_a_terminated_client_leaves_its_neighbour_and_the_server_alone(bench: Bench) -> None:
    result = run_check(TERMINATE_V2, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    assert result.figures["the neighbour's next call"] == "succeeded"
    assert result.figures["a new client"] == "succeeded"
    assert result.figures["seconds of terminate, protocol 2"] >= 0


def test_a_terminate_that_hangs_fails_the_check(bench: Bench, fake_gpus: FakeGPUs) -> None:
    bench.terminated_within = bench.ends_within = 0.5
    fake_gpus.mps(terminate_hang=1)
    result = run_check(TERMINATE_V2, bench)
    assert result.outcome is Outcome.FAILED
    assert "terminate was refused: no answer to" in result.reason


def test_a_wedge_is_found_by_the_new_client_and_cured_by_a_restart(
    bench: Bench, fake_gpus: FakeGPUs
) -> None:
    bench.canary_within, bench.ends_within = 3.0, 0.5
    fake_gpus.mps(kill="orphan")
    result = run_check(KILL_V2, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    assert "did not answer" in result.figures["a new client"]


def test_protocol_3_is_tried_where_the_driver_has_it(bench: Bench, fake_gpus: FakeGPUs) -> None:
    bench.driver = "580.95.05"
    assert outcome(run_check(TERMINATE_V3, bench)) == (
        Outcome.NOT_APPLICABLE,
        "driver 580.95.05 is older than r615, the first with MPS protocol 3",
    )
    new_driver(bench, fake_gpus)
    assert outcome(run_check(TERMINATE_V3, bench)) == (Outcome.PASSED, "")


def test_what_the_agent_writes_configures_a_daemon(bench: Bench, fake_gpus: FakeGPUs) -> None:
    new_driver(bench, fake_gpus)
    assert outcome(run_check(CONFIGURATION, bench)) == (Outcome.PASSED, "")


def test_the_state_after_a_fault_is_read_with_protocol_3(bench: Bench, fake_gpus: FakeGPUs) -> None:
    new_driver(bench, fake_gpus)
    result = run_check(SM_FAULT_V3, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    assert {row[5] for row in result.tables[0].rows} <= {"Ready", "Fault"}


@pytest.mark.parametrize("check", [PARTITIONS, PARTITIONS_V3], ids=lambda check: check.name)
def test_an_sm_fault_stays_in_its_partition(
    bench: Bench, fake_gpus: FakeGPUs, check: Check
) -> None:
    new_driver(bench, fake_gpus)
    result = run_check(check, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    trap, _, address = result.tables[0].rows
    assert (trap[0], trap[3]) == ("trap", "computed on")
    assert "CUDA_ERROR" in address[3]


def test_limits_of_the_driver_are_tried_on_cgroups_of_our_own(
    bench: Bench, fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_driver(bench, fake_gpus)
    plain_cgroups(bench, fake_gpus, monkeypatch)
    results = {check.name: run_check(check, bench) for check in DRIVER_LIMITS}
    assert [outcome(result) for result in results.values()] == [(Outcome.PASSED, "")] * 4
    soft = results["driver-limit-soft"]
    equal, zero = soft.tables[0].rows
    assert (equal[3], zero[3]) == (4096, 0), "what a removed cgroup leaves above it"
    assert soft.figures["after the repair, MiB"] == 0


def test_a_driver_that_does_not_limit_fails_the_check(
    bench: Bench, fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_driver(bench, fake_gpus)
    plain_cgroups(bench, fake_gpus, monkeypatch)
    monkeypatch.setattr(
        "acceptance.checks.driver_limits.set_limits", lambda *_arguments, **_limits: None
    )
    result = run_check(DRIVER_LIMITS[1], bench)
    assert result.outcome is Outcome.FAILED
    assert result.reason == "the total is 40960 MiB with a limit of 4096 MiB"


def test_the_number_of_clients_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.checks.many_clients.max_clients", lambda _cuda: 3)
    result = run_check(CLIENT_LIMIT, bench)
    assert result.outcome is Outcome.FAILED
    assert result.reason == "more than 3 clients are accepted"
