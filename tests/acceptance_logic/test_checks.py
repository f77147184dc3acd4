"""The checks on a fake GPU, which behaves as NVIDIA's documentation says, or on purpose does not."""

from __future__ import annotations

import pytest

from acceptance.bench import Bench
from acceptance.checks import pairs
from acceptance.checks.lifecycle import LIFECYCLE, STATUS
from acceptance.checks.limit import LIMIT
from acceptance.checks.many_clients import COUNTING
from acceptance.results import Check, Findings, Outcome
from acceptance.session import run_check
from gpu.fake import FakeGPUs


@pytest.mark.parametrize(
    "check", [LIFECYCLE, STATUS, LIMIT, COUNTING], ids=lambda check: check.name
)
def test_passes_where_mps_behaves_as_documented(check: Check, bench: Bench) -> None:
    result = run_check(check, bench)
    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


def test_a_limit_that_refuses_nothing_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceptance.checks.limit._variables", lambda _limit: {})
    result = run_check(LIMIT, bench)
    assert result.outcome is Outcome.FAILED
    assert "8192 MiB were granted with a limit of 4096 MiB" in result.reason


def test_a_server_that_does_not_start_is_told_with_what_was_said(
    bench: Bench, fake_gpus: FakeGPUs
) -> None:
    bench.mps_starts_within = 10.0
    fake_gpus.mps(refuse_server=1)
    result = run_check(LIFECYCLE, bench)
    assert result.outcome is Outcome.FAILED
    assert "no MPS server became ACTIVE" in result.reason
    assert "it said: " in result.reason
    assert "Cmd:start_server" in result.reason
    others = run_check(LIMIT, bench)
    assert (others.outcome, others.reason) == (Outcome.NOT_RUN, result.reason)


def test_a_check_breaks_off_alone_and_keeps_what_it_found(bench: Bench) -> None:
    def broken(_bench: Bench, findings: Findings) -> None:
        findings.figures["seen"] = 1
        raise ZeroDivisionError("oops")

    result = run_check(Check("broken", "", "", broken), bench)
    assert result.outcome is Outcome.FAILED
    assert "ZeroDivisionError: oops (test_checks.py:" in result.reason
    assert result.figures == {"seen": 1}


def test_without_mps_time_slicing_is_measured_all_the_same(bench: Bench) -> None:
    bench.no_mps = "the MPS program is missing"
    result = run_check(pairs.PAIRS, bench)
    assert result.outcome is Outcome.NOT_RUN
    assert result.reason == "with MPS: the MPS program is missing"
    assert result.tables[-1].title == "Slowdown with time slicing"
    assert {row[2] for row in result.tables[-1].rows} == {1.0}


def test_predictions_that_hold_pass_and_others_do_not() -> None:
    measured = {("a", "b"): (2.0, 1.5)}
    right, wrong = Findings(), Findings()
    pairs.judge("MPS", measured, {("a", "b"): (2.2, 1.4)}, right)
    pairs.judge("MPS", measured, {("a", "b"): (4.0, 3.0)}, wrong)
    assert right.failures == []
    assert wrong.failures == ["with MPS the median error is 100%, over 25%"]
