"""Attribution of what the GPU tells, and traces of a bounded size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import GPUSample, TracePoint, UsageTrace, attribute

IDLE_AFTER = AgentTimes.idle_after
MIB = 1 << 20


def test_memory_and_sm_use_are_each_jobs_own():
    reading = GPUSample(
        at=0,
        memory={1: 5 * MIB, 2: 7 * MIB, 3: 9 * MIB, 4: MIB},
        utilization=90,
        shares={1: 20, 2: 10, 3: 30},
        occupancy=60,
        pcie=600,
        bandwidth=40,
    )
    uses = attribute(reading, {1: "a", 2: "a", 3: "b"})
    assert uses == {
        "a": TracePoint(12 * MIB, 30, 30, 300, 20, in_use=True),
        "b": TracePoint(9 * MIB, 30, 30, 300, 20, in_use=True),
    }


def test_without_usage_by_process_the_usage_is_divided_equally():
    reading = GPUSample(at=0, memory={1: MIB, 2: MIB}, utilization=80, occupancy=10, pcie=100)
    assert attribute(reading, {1: "a", 2: "b"})["b"] == TracePoint(MIB, 40, 5, 50, in_use=True)
    assert attribute(reading, {1: "a"})["a"] == TracePoint(MIB, 80, 10, 100, in_use=True)


@pytest.mark.parametrize(
    ("shares", "parts"),
    [
        ({9: 60}, (30.0, 30.0)),  # all of it is the server's, in NVML's view
        ({9: 40, 1: 20}, (40.0, 20.0)),
        ({9: 0, 1: 0}, (40.0, 40.0)),  # a kernel ran, too briefly to be anybody's
    ],
)
def test_what_nvml_credits_to_the_mps_server_belongs_to_its_clients(
    shares: dict[int, int], parts: tuple[float, float]
):
    reading = GPUSample(at=0, memory={1: MIB, 2: MIB, 9: 0}, utilization=80, shares=shares)
    uses = attribute(reading, {1: "a", 2: "b"}, mps=True)
    assert (uses["a"].utilization, uses["b"].utilization) == parts
    assert uses["a"].in_use
    assert uses["b"].in_use


def test_memory_that_the_driver_counts_replaces_the_sum_over_processes():
    reading = GPUSample(at=0, memory={1: 5 * MIB, 2: 7 * MIB, 3: 9 * MIB})
    uses = attribute(reading, {1: "a", 2: "a", 3: "b"}, {"a": 11 * MIB})
    assert uses == {"a": TracePoint(11 * MIB, in_use=True), "b": TracePoint(9 * MIB, in_use=True)}


@pytest.mark.parametrize(
    ("utilization", "shares", "users"),
    [
        (90, {1: 90, 2: 0}, "a"),
        (90, {1: 90}, "a"),
        # A kernel ran, and the driver does not say whose.
        (90, {}, "ab"),
        (90, None, "ab"),
        (None, None, "ab"),
        (0, {}, ""),
        (0, None, ""),
        # Without MPS: a process without an allocation used the GPU.
        (50, {9: 50}, ""),
    ],
)
def test_a_job_counts_as_idle_only_if_surely_none_of_its_kernels_ran(
    utilization: int | None, shares: dict[int, int] | None, users: str
):
    reading = GPUSample(at=0, memory={1: MIB, 2: MIB}, utilization=utilization, shares=shares)
    uses = attribute(reading, {1: "a", 2: "b"})
    assert "".join(job for job in sorted(uses) if uses[job].in_use) == users


def test_a_job_is_idle_since_its_last_kernel_after_a_while():
    trace = UsageTrace()
    trace.add(100.0, TracePoint(MIB, in_use=True))
    trace.add(101.0, TracePoint(MIB))
    trace.add(101.0 + IDLE_AFTER - 1, TracePoint(MIB))
    assert trace.idle_since is None
    trace.add(101.0 + IDLE_AFTER, TracePoint())
    assert trace.idle_since == 101.0
    trace.add(102.0 + IDLE_AFTER, TracePoint(MIB, in_use=True))
    assert trace.idle_since is None


def test_between_two_samples_the_usage_is_that_of_the_earlier_one():
    trace = UsageTrace(limit=64)
    for second in range(4):
        trace.add(100.0 + second, TracePoint((second + 1) * MIB, 50.0))
    steps = trace.steps(100.0, 103.1)
    assert min(step.memory for step in steps) == MIB
    assert [step.utilization for step in steps] == pytest.approx([50.0] * len(steps))
    assert steps[0].memory == MIB
    assert steps[-1].memory == 4 * MIB


def test_a_figure_counts_for_as_long_as_it_held():
    trace = UsageTrace(limit=1)
    for at, percent in ((0.0, 100.0), (0.1, 100.0), (0.2, 100.0), (0.3, 100.0), (3.0, 0.0)):
        trace.add(at, TracePoint(MIB, percent))
    assert trace.steps(0.0, 3.0)[0].utilization == pytest.approx(22, abs=1)


samples = st.lists(
    st.tuples(st.floats(0, 5000), st.integers(0, 1 << 40), st.one_of(st.none(), st.floats(0, 100))),
    min_size=1,
    max_size=300,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@given(samples)
@settings(max_examples=100, deadline=None)
def test_a_trace_is_bounded_and_keeps_its_peak(taken):
    trace = UsageTrace(limit=8)
    for at, memory, utilization in taken:
        trace.add(at, TracePoint(memory, utilization))
    assert len(trace) <= 16
    assert trace.peak == max(memory for _, memory, _ in taken)
    steps = trace.steps(taken[0][0], taken[-1][0] + 1)
    assert 1 <= len(steps) <= 8
    assert max(step.memory for step in steps) == trace.peak
    low = min((u for _, _, u in taken if u is not None), default=0)
    high = max((u for _, _, u in taken if u is not None), default=0)
    for step in steps:
        if step.utilization is not None:
            assert low - 1e-6 <= step.utilization <= high + 1e-6


def test_a_figure_that_was_never_there_is_in_no_step():
    trace = UsageTrace(limit=4)
    for n in range(100):
        trace.add(n, TracePoint(MIB, 50.0))
    assert all(step.occupancy is None and step.pcie is None for step in trace.steps(0, 100))


def test_the_shape_of_a_run_outlives_downsampling():
    trace = UsageTrace(limit=4)
    for n in range(4096):
        half = n >= 2048
        trace.add(n / 10, TracePoint((2 if half else 1) * MIB, 80.0 if half else 20.0))
    steps = trace.steps(0, 409.6)
    assert [step.memory // MIB for step in steps] == [1, 1, 2, 2]
    assert [round(step.utilization or 0) for step in steps] == [20, 20, 80, 80]


def test_time_before_the_gpu_was_first_used_is_idle():
    trace = UsageTrace(limit=4)
    for n in range(200):
        trace.add(20 + n / 10, TracePoint(MIB, 50.0))
    assert trace.first == 20
    idle, _, _, busy = trace.steps(0, 40)
    assert (idle.memory, idle.utilization) == (0, None)
    assert (busy.memory, round(busy.utilization or 0)) == (MIB, 50)


def test_a_short_run_has_as_many_steps_as_samples():
    trace = UsageTrace()
    trace.add(5.0, TracePoint(MIB, 10.0))
    trace.add(5.1, TracePoint(2 * MIB, 30.0))
    steps = trace.steps(5.0, 5.2)
    assert [step.memory for step in steps] == [MIB, 2 * MIB]


@pytest.mark.parametrize("end", [4.0, 5.0])
def test_a_run_that_ends_before_it_begins_is_still_one_step(end: float):
    trace = UsageTrace()
    trace.add(5.0, TracePoint(MIB, 10.0))
    assert max(step.memory for step in trace.steps(5.0, end)) == MIB
