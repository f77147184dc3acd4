"""The checks that need only the driver, on a fake GPU that behaves well, or on purpose does not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.bench import Bench
from acceptance.checks.driver_limits import DRIVER_LIMITS
from acceptance.checks.kills import KILLS
from acceptance.checks.many_clients import CLIENT_LIMIT
from acceptance.checks.sm_fault import SM_FAULTS
from acceptance.results import Check, Outcome, Result
from acceptance.session import run_check
from gpu.fake import FakeGPUs
from support.polling import poll

ESCAPES, TOTAL, SOFT, MPS_V2 = DRIVER_LIMITS
KILL_V2, TERMINATE_V2, KILL_V3, TERMINATE_V3 = KILLS
WITHOUT, WITH = SM_FAULTS


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU needs no seconds to show what it does."""
    for name, value in (("_KERNEL", 0.5), ("_NEIGHBOUR", 0.5)):
        monkeypatch.setattr(f"acceptance.checks.kills.{name}", value)


def new_driver(bench: Bench, gpus: FakeGPUs) -> None:
    gpus.install_driver("615.71.09", cuda=13040)
    bench.driver, bench.cuda = "615.71.09", 13040


def plain_cgroups(
    bench: Bench, gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch, *, dmem: bool
) -> None:
    """Let the checks use the fake node's cgroups, which are plain folders."""
    tree = gpus.mount_cgroups(dmem=dmem)

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
    bench.terminated_within = 0.5
    fake_gpus.mps(terminate_hang=1)
    result = run_check(TERMINATE_V2, bench)
    assert result.outcome is Outcome.FAILED
    assert "terminate was refused: no answer to" in result.reason


def test_a_kill_is_reported_with_what_became_of_the_others(bench: Bench) -> None:
    result = run_check(KILL_V2, bench)
    assert result.outcome is Outcome.PASSED
    assert {"the neighbour's next call", "a new client"} <= set(result.figures)


def test_a_kill_that_takes_the_neighbour_is_reported_as_it_is(
    bench: Bench, fake_gpus: FakeGPUs
) -> None:
    fake_gpus.mps(kill="fault")
    result = run_check(KILL_V2, bench)
    assert result.outcome is Outcome.PASSED
    assert "CUDA_ERROR" in result.figures["the neighbour's next call"]


def test_a_wedge_is_found_by_the_new_client_and_cured_by_a_restart(
    bench: Bench, fake_gpus: FakeGPUs
) -> None:
    bench.canary_within = 3.0
    fake_gpus.mps(kill="orphan")
    result = run_check(KILL_V2, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    assert "did not answer" in result.figures["a new client"]


@pytest.mark.parametrize("check", [KILL_V3, TERMINATE_V3], ids=lambda check: check.name)
def test_protocol_3_is_tried_where_the_driver_has_it(
    check: Check, bench: Bench, fake_gpus: FakeGPUs
) -> None:
    new_driver(bench, fake_gpus)
    assert outcome(run_check(check, bench)) == (Outcome.PASSED, "")


def test_an_sm_fault_stays_in_its_partition(bench: Bench, fake_gpus: FakeGPUs) -> None:
    new_driver(bench, fake_gpus)
    result = run_check(WITH, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    trap, _, address = result.tables[0].rows
    assert (trap[0], trap[3]) == ("trap", "computed on")
    assert "CUDA_ERROR" in address[3]


@pytest.mark.parametrize("dmem", [True, False], ids=["dmem", "misc"])
@pytest.mark.parametrize("check", DRIVER_LIMITS, ids=lambda check: check.name)
def test_limits_of_the_driver_are_tried_on_cgroups_of_our_own(
    check: Check,
    dmem: bool,  # noqa: FBT001 - a parameter of the test
    bench: Bench,
    fake_gpus: FakeGPUs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_driver(bench, fake_gpus)
    plain_cgroups(bench, fake_gpus, monkeypatch, dmem=dmem)
    result = run_check(check, bench)
    assert result.reason == ""
    assert result.outcome is Outcome.PASSED


def test_a_soft_limit_leaves_a_reservation_that_is_found_and_repaired(
    bench: Bench, fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_driver(bench, fake_gpus)
    plain_cgroups(bench, fake_gpus, monkeypatch, dmem=True)
    result = run_check(SOFT, bench)
    equal, zero = result.tables[0].rows
    assert (equal[3], zero[3]) == (4096, 0)
    assert result.figures["after the repair, MiB"] == 0


def test_a_driver_that_does_not_limit_fails_the_check(
    bench: Bench, fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_driver(bench, fake_gpus)
    plain_cgroups(bench, fake_gpus, monkeypatch, dmem=True)
    monkeypatch.setattr(
        "acceptance.checks.driver_limits.set_limits", lambda *_arguments, **_limits: None
    )
    result = run_check(ESCAPES, bench)
    assert result.outcome is Outcome.FAILED
    assert "no MPS variables: 8192 MiB were granted" in result.reason


@pytest.mark.parametrize("check", [KILL_V3, TERMINATE_V3], ids=lambda check: check.name)
def test_protocol_3_does_not_apply_to_an_older_driver(check: Check, bench: Bench) -> None:
    bench.driver = "580.95.05"
    assert outcome(run_check(check, bench)) == (
        Outcome.NOT_APPLICABLE,
        "driver 580.95.05 is older than r615, the first with MPS protocol 3",
    )


def test_a_fault_ends_every_client_without_partitions(bench: Bench) -> None:
    result = run_check(WITHOUT, bench)
    assert outcome(result) == (Outcome.PASSED, "")
    assert all("CUDA_ERROR_LAUNCH_FAILED" in row[3] for row in result.tables[0].rows)


def test_the_number_of_clients_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.checks.many_clients.max_clients", lambda _cuda: 3)
    result = run_check(CLIENT_LIMIT, bench)
    assert result.outcome is Outcome.FAILED
    assert result.reason == "more than 3 clients are accepted"


def test_a_server_that_refuses_early_fails_the_check(bench: Bench, fake_gpus: FakeGPUs) -> None:
    fake_gpus.mps(max_clients=2)
    result = run_check(CLIENT_LIMIT, bench)
    assert result.reason == "only 2 of 48 clients were accepted"
    assert result.figures["the refusal of one more"] == (
        "cuInit: CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"
    )


def test_no_process_of_the_checks_is_left(bench: Bench, fake_gpus: FakeGPUs) -> None:
    run_check(KILL_V2, bench)
    poll(lambda: not fake_gpus.pids())
