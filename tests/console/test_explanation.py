"""Whether a job is slowed down, by what, and how much memory it needs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cli.objects import attempt, job, lists, node, partition, running, server
from cli.workloads import workload
from partita.claims.workload_view import job_view
from partita.claims.workloads import find_workloads
from partita.cli.cluster_state import state_of
from partita.console.advice import memory_needed
from partita.console.explanation import Explanation, explain
from partita.console.view import partitions_view
from partita.models import SharedGPUJob
from partita.models.profile import application_hash
from support.builders import GIB, profile_body

NOW = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
STEP = {"gpuUtilization": 100, "smOccupancy": 60, "gpuMemory": "1Gi"}
MINE = job("mine", "10Gi", application="mine", status=running("shared-0"))
HOG = job("hog", "10Gi", namespace="other", application="hog", status=running("shared-0"))


def profile(application: str, namespace: str = "team", **measured: Any) -> dict[str, Any]:
    body = profile_body(application, namespace=namespace)
    environment = {"product": "NVIDIA A100", "memory": "40Gi"}
    default = {"environment": environment, "duration": "10s", "runs": 2, "steps": [STEP]}
    body["spec"]["measurements"] = [{**default, **measured}]
    return {"kind": "ApplicationProfile", **body}


def ran(duration: str, *beside: str, pod: str = "") -> dict[str, Any]:
    keys = [application_hash("other", name) for name in beside]
    return {"duration": duration, "podUID": pod, "beside": [{"part": 1, "applications": keys}]}


def explained(*objects: dict[str, Any], beside: bool = True, mine: Any = MINE) -> Explanation:
    gpu = server("shared-0", mine, *([HOG] if beside else []))
    for name, entry in gpu["status"]["allocations"].items():
        entry["application"] = name.removeprefix("claim-")
    state = state_of(lists(node(), partition(), gpu, mine, HOG, *objects))
    (view,) = find_workloads("team", "SharedGPUJob", "mine", state)
    return explain(view, state, NOW)


HOGS = profile("hog", "other", undisturbed=1)
SLOW = [ran("36s", "hog"), ran("36s", "hog")]
PREDICTED = "predicted to take 2.12 times as long as alone"
UNMEASURED = "not observed: no run of its application alone was measured yet"
ENDED = job("mine", "10Gi", application="mine", status={
    "phase": "Succeeded", "attempts": [attempt(1, "shared-0", podUID="p", outcome="Succeeded")],
})  # fmt: skip


@pytest.mark.parametrize(
    ("objects", "more", "slowed"),
    [
        ([HOGS, profile("mine", undisturbed=1, sharedRuns=SLOW)], {}, f"{PREDICTED.replace('2.12', '2.76')}; 2 earlier runs beside the same applications took 3.60 times as long as alone (2.12 was predicted)"),
        ([HOGS, profile("mine", undisturbed=1, sharedRuns=[ran("15s", "x")])], {}, f"{PREDICTED}; 1 earlier run beside other applications took 1.50 times as long as alone"),
        ([HOGS, profile("mine", undisturbed=1)], {}, f"{PREDICTED}; not observed: no run beside others was measured yet"),
        ([HOGS, profile("mine", sharedRuns=SLOW)], {}, f"{PREDICTED}; {UNMEASURED}"),
        ([], {}, f"not predicted: no profile is known of an application on its GPU; {UNMEASURED}"),
        ([profile("mine", undisturbed=1, duration="4s")], {"beside": False}, "none now: nothing runs beside it; it runs for 5s now, alone it takes 4s"),
        ([HOGS, profile("mine", undisturbed=1, sharedRuns=[ran("20s", "hog", pod="p")])],
         {"mine": ENDED, "beside": False}, "took 2.00 times as long as alone (20s, alone it takes 10s); 2.12 was predicted"),
        ([HOGS, profile("mine", sharedRuns=[ran("20s", "hog", pod="p")])],
         {"mine": ENDED, "beside": False},
         f"2.12 times as long as alone was predicted; {UNMEASURED}"),
        ([HOGS, profile("mine", undisturbed=1, sharedRuns=SLOW)],
         {"mine": ENDED, "beside": False}, ""),
    ],
)  # fmt: skip
def test_the_slowdown_is_predicted_and_observed(
    objects: list[dict[str, Any]], more: dict[str, Any], slowed: str
) -> None:
    assert explained(*objects, **more).slowed == slowed


def test_what_is_beside_a_job_is_what_is_there_now() -> None:
    assert explained().beside == ["other/hog"]
    assert explained(beside=False).beside == []


VIEW = job_view(SharedGPUJob.parse(MINE))


@pytest.mark.parametrize(
    ("peaks", "said"),
    [
        ((6 * GIB, None, ()), "6759Mi (6.6 GiB): at most 6.0 GiB used in 2 runs, and 10 % more because runs differ"),
        ((None, 6 * GIB, ()), "6759Mi (6.6 GiB): at most 6.0 GiB used so far, and 10 % more because runs differ"),
        ((None, 6 * GIB, [8 * GIB]), "more than 8.0 GiB, with which it ran out of it; it has 10.0 GiB"),
        ((None, None, ()), "not known yet: no run of application mine was measured"),
    ],
)  # fmt: skip
def test_how_much_memory_it_needs_is_one_number(peaks: Any, said: str) -> None:
    learnt, own, refused = peaks
    steps = [{**STEP, "gpuMemory": str(learnt)}]
    state = state_of(lists(*([profile("mine", steps=steps)] if learnt else [])))
    assert memory_needed(VIEW, state.profiles.profile("team", "mine"), own, refused) == said


def test_what_is_learnt_is_what_is_asked_for() -> None:
    learns = job("learns", None, application="mine", status={"phase": "Queued"})
    pod, claim = workload("serve", None, annotations={"partita.dev/application": "mine"})
    measured = profile("mine", steps=[{**STEP, "gpuMemory": "10Gi"}])
    state = state_of(lists(node(), partition(), learns, pod, claim, measured))
    (seen,) = partitions_view(state, NOW)
    asked = {view.name: view.asks for view in seen.queue}
    assert asked == {"learns": "11.0 GiB", "serve": "11.0 GiB"}
    (view,) = find_workloads("team", "Pod", "serve", state)
    memory = explain(view, state, NOW).settings[0]
    assert memory.value == "11.0 GiB"
    assert memory.source == "learnt from 2 runs of application mine: 10.0 GiB and 10 %"
    assert job_view(SharedGPUJob.parse(learns)).asks == "as learnt"
