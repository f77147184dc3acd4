"""The checks on a fake GPU, which behaves as NVIDIA's documentation says, or on purpose does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceptance.bench import Bench
from acceptance.checks import cache, clients, pairs
from acceptance.checks.lifecycle import LIFECYCLE, STATUS
from acceptance.checks.limit import LIMIT
from acceptance.model import predicted
from acceptance.results import Check, Findings, Outcome
from acceptance.session import run_check
from gpu.fake import FakeGPUs


@pytest.mark.parametrize("check", [LIFECYCLE, STATUS, LIMIT], ids=lambda check: check.name)
def test_passes_where_mps_behaves_as_documented(check: Check, bench: Bench) -> None:
    result = run_check(check, bench)
    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


def test_a_limit_that_refuses_nothing_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LIMIT", "ignored")
    result = run_check(LIMIT, bench)
    assert result.outcome is Outcome.FAILED
    assert "8192 MiB were granted with a limit of 4096 MiB" in result.reason


def test_a_server_that_does_not_start_is_told_with_what_was_said(
    bench: Bench, fake_gpus: FakeGPUs
) -> None:
    bench.mps_starts_within = 2.0
    fake_gpus.mps(refuse_server=1)
    result = run_check(LIFECYCLE, bench)
    assert result.outcome is Outcome.FAILED
    assert "no MPS server became ACTIVE" in result.reason
    assert "it said: " in result.reason
    assert "Cmd:start_server" in result.reason
    others = run_check(LIMIT, bench)
    assert (others.outcome, others.reason) == (Outcome.NOT_RUN, result.reason)


def test_answers_that_cannot_be_read_fail_the_check(bench: Bench, fake_gpus: FakeGPUs) -> None:
    with bench.sharing(mps=True) as sharing:
        assert sharing.daemon is not None
        fake_gpus.mps(garbage=1)
        findings = run_check(
            Check("x", "", "", lambda _b, _f: sharing.daemon.server, 0),  # type: ignore[union-attr]
            bench,
        )
        fake_gpus.mps()
    assert findings.outcome is Outcome.FAILED
    assert "not a list of PIDs" in findings.reason


def test_a_check_breaks_off_alone_and_keeps_what_it_found(bench: Bench) -> None:
    def broken(_bench: Bench, findings: Findings) -> None:
        findings.figures["seen"] = 1
        raise ZeroDivisionError("oops")

    result = run_check(Check("broken", "", "", broken, 0), bench)
    assert result.outcome is Outcome.FAILED
    assert "ZeroDivisionError: oops (test_checks.py:" in result.reason
    assert result.figures == {"seen": 1}


def test_without_mps_time_slicing_is_measured_all_the_same(bench: Bench) -> None:
    bench.no_mps = "the MPS program is missing"
    result = run_check(clients.CLIENTS, bench)
    assert result.outcome is Outcome.NOT_RUN
    assert result.reason == "with MPS: the MPS program is missing"
    assert [row[5] for row in result.tables[0].rows] == [0.01] * 4


def test_the_published_times_of_nos_pass() -> None:
    findings = Findings()
    clients.judge({mps: dict(times) for mps, times in clients.PUBLISHED.items()}, findings)
    assert findings.failures == []


def test_clients_that_gain_nothing_by_mps_fail() -> None:
    findings = Findings()
    clients.judge({True: clients.PUBLISHED[False], False: clients.PUBLISHED[False]}, findings)
    assert len(findings.failures) == 3


def test_the_published_cache_table_passes() -> None:
    findings = Findings()
    with_mps, without = (
        {
            kind: {size: times[index] for size, times in sizes.items()}
            for kind, sizes in cache.PUBLISHED.items()
        }
        for index in (0, 1)
    )
    cache.judge(with_mps, without, findings)
    assert findings.failures == []
    assert [row[4] for row in findings.tables[0].rows] == [
        row[5] for row in findings.tables[0].rows
    ]


def test_kernels_of_one_speed_and_matrices_that_do_not_fit_are_told(bench: Bench) -> None:
    # Three matrices of 40960 x 40960 and 4 bytes take 18.75 GiB.
    bench.identity = replace(bench.identity, memory=16 << 30)
    result = run_check(cache.CACHE, bench)
    assert result.outcome is Outcome.FAILED
    assert "the cache-sensitive kernel is not what it is called on this GPU" in result.reason
    assert "size 40960: three such matrices do not fit" in result.reason
    assert "size 20480" not in result.reason


def test_predictions_that_hold_pass_and_others_do_not() -> None:
    measured = {("a", "b"): (2.0, 1.5)}
    right, wrong = Findings(), Findings()
    pairs.judge("MPS", measured, {("a", "b"): (2.2, 1.4)}, right)
    pairs.judge("MPS", measured, {("a", "b"): (4.0, 3.0)}, wrong)
    assert right.failures == []
    assert wrong.failures == ["with MPS the median error is 100%, over 25%"]


def test_two_programs_that_always_compute_are_predicted_to_take_turns() -> None:
    busy = {"gpu": 100.0, "core": 0.0, "memory": 1e9, "pcie": 0.0}
    assert predicted([busy, busy], 0, mps=False) == pytest.approx([2.142, 2.142])
