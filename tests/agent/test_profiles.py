"""Runs merged into profiles."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partita.agent.usage.job_usage import TracePoint
from partita.agent.usage.profiles import MEMORY_OF_RUNS, measurement, merge
from partita.models.profile import ApplicationProfileSpec, Environment, Measurement, profile_name

MIB = 1 << 20
A100 = Environment(node="a", product="A100")
H100 = Environment(node="b", product="H100")
EMPTY = ApplicationProfileSpec(application="resnet")


def run(*memory: int, duration: float = 10.0, use: float = 50.0, where=A100) -> Measurement:
    return measurement([TracePoint(m * MIB, use) for m in memory], duration, where)


def test_the_first_run_is_the_profile():
    (only,) = merge(EMPTY, run(1, 5)).measurements
    assert (only.runs, only.duration, only.peak_memory) == (1, 10.0, 5 * MIB)
    assert only.steps[0].sm_occupancy is None


def test_a_second_run_is_weighed_against_the_first():
    profile = merge(merge(EMPTY, run(4, duration=10, use=20)), run(2, duration=20, use=40))
    (only,) = profile.measurements
    assert (only.runs, only.duration) == (2, 15.0)
    assert only.steps[0].gpu_utilization == 30
    assert only.steps[0].gpu_memory == 3 * MIB


def test_use_that_the_gpu_does_not_tell_is_unknown_and_not_0():
    unknown = measurement([TracePoint(), TracePoint(MIB)], 10.0, A100)
    assert [step.gpu_utilization for step in unknown.steps] == [0.0, None]
    (only,) = merge(merge(EMPTY, run(1, use=40)), unknown).measurements
    assert only.steps[1].gpu_utilization == 40


def test_an_old_profile_follows_its_application():
    profile = EMPTY
    for _ in range(1000):
        profile = merge(profile, run(1, duration=10))
    for _ in range(5 * MEMORY_OF_RUNS):
        profile = merge(profile, run(1, duration=30))
    (only,) = profile.measurements
    assert only.runs == 1000 + 5 * MEMORY_OF_RUNS
    assert only.duration > 29


def test_each_product_has_a_measurement_of_its_own():
    profile = merge(merge(EMPTY, run(1)), run(2, where=H100))
    profile = merge(profile, run(3, where=H100))
    assert [(m.environment.product, m.runs) for m in profile.measurements] == [
        ("A100", 1),
        ("H100", 2),
    ]
    assert profile.measurement("A100") == run(1)


def test_runs_of_different_lengths_are_laid_upon_each_other():
    profile = merge(merge(EMPTY, run(1, 9)), run(1, 1, 9, 9))
    assert [step.gpu_memory // MIB for step in profile.measurements[0].steps] == [1, 1, 9, 9]


def test_a_figure_of_one_run_alone_is_kept():
    with_it = measurement([TracePoint(MIB, 10, 30.0, 5.0, 40.0)], 10, A100)
    step = merge(merge(EMPTY, run(1)), with_it).measurements[0].steps[0]
    assert (step.sm_occupancy, step.pcie_throughput, step.memory_utilization) == (30.0, 5, 40.0)


def test_the_resource_takes_no_more_products_than_it_holds():
    profile = EMPTY
    for n in range(40):
        profile = merge(profile, run(1, where=Environment(product=f"GPU {n}")))
    assert len(profile.measurements) == 32
    assert profile.measurements[-1].environment.product == "GPU 39"
    ApplicationProfileSpec.model_validate(profile.dump())


@given(st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=64), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_a_merged_profile_is_a_valid_one(runs):
    profile = EMPTY
    for memory in runs:
        profile = merge(profile, run(*memory))
    again = ApplicationProfileSpec.model_validate(profile.dump())
    (only,) = again.measurements
    assert only.runs == len(runs)
    assert max(runs[-1]) * MIB <= only.peak_memory <= max(map(max, runs)) * MIB


def test_names_are_made_ones_that_kubernetes_takes_and_never_the_same_twice():
    assert profile_name("resnet-50") == "resnet-50"
    names = [profile_name(name) for name in ("ResNet50", "resnet50!", "Ré", "x" * 80, "-", "_")]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= 63
        assert name[0].isalnum()
        assert name.replace("-", "").isalnum()
        assert name.isascii()
        assert name == name.lower()
