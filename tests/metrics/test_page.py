"""What a scrape finds, on states that a test makes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from metrics.example import ENDED
from partita.accounting.usage_meter import UsageMeter
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.gpu_server import RestartReason
from partita.models.partition import PolicySpec
from partita.models.partition_status import GPUState
from partita.partitions.partition_status import partition_status
from partita.process.metrics.page import Metrics
from partita.scheduling.policy_runner import PolicyRunner, ShadowCount
from partita.store.state import State
from support.builders import (
    GIB,
    START,
    a_job,
    a_state,
    allocation,
    at,
    gpus_up,
    job_body,
    partition_body,
    server_body,
    take,
)
from support.claims import claim_body, claim_entry, claiming_pod_body

RUNNERS: Mapping[str, PolicyRunner] = {}
OLDEST = "partita_queue_oldest_timestamp_seconds"


def metrics(state: State, runners: Mapping[str, PolicyRunner] = RUNNERS, **more: Any) -> Metrics:
    options: dict[str, Any] = {"leads": lambda: True, "writes": Counter(), **more}
    made = Metrics(state, options.pop("meter", UsageMeter(state)), **options)
    made.lead(runners.get)
    return made


def values(made: Metrics, metric: str, **where: str) -> dict[tuple[str, ...], float]:
    """Values of a series by its labels, those of `where` left out."""
    return {
        tuple(value for label, value in sample.labels.items() if label not in where): sample.value
        for family in made.registry.collect()
        for sample in family.samples
        if sample.name == metric and where.items() <= sample.labels.items()
    }


# Leading.


def test_one_that_waits_to_lead_says_nothing_of_queues_and_gpus():
    state = a_state(partition_body(), job_body(), *gpus_up(server_body()))
    made = Metrics(
        state, UsageMeter(state), leads=lambda: False, writes=Counter({("create", "pods"): 3})
    )
    names = {family.name for family in made.registry.collect()}
    ours = {name for name in names if name.startswith("partita_")}
    assert ours == {"partita_leader", "partita_build_info"}
    assert values(made, "partita_leader") == {(): 0}
    assert "process_resident_memory_bytes" in names


def test_one_whose_lease_ran_out_says_so_at_once():
    holds = True
    made = metrics(a_state(), leads=lambda: holds)
    assert values(made, "partita_leader") == {(): 1}
    holds = False
    assert values(made, "partita_leader") == {(): 0}


# The queue.


def test_jobs_are_counted_by_phase_and_what_waits_by_reason():
    ledger = {"claim-on": allocation("on")}
    state = a_state(
        partition_body(),
        partition_body("empty"),
        *gpus_up(server_body(allocations=ledger)),
        job_body("on", status={"phase": "Running"}),
        job_body("new"),
        job_body("full", status={"phase": "Queued", "reason": "InsufficientMemory"}),
        job_body("huge", status={"phase": "Queued", "reason": "NeverFits"}),
        job_body("forged", status={"phase": "Queued", "reason": "uid-4711"}),
        job_body("off", suspend=True, status={"phase": "Suspended"}),
        job_body("done", status={"phase": "Succeeded"}),
        job_body("lost", partition="nowhere"),
    )
    made = metrics(state)
    phases = values(made, "partita_jobs", partition="shared")
    assert phases == {
        ("Queued",): 4, ("Assigned",): 0, ("Running",): 1,
        ("Succeeded",): 1, ("Failed",): 0, ("Suspended",): 1,
    }  # fmt: skip
    reasons = values(made, "partita_queue_jobs", partition="shared")
    waiting = {"Scheduling": 1, "InsufficientMemory": 1, "NeverFits": 1, "Other": 1}
    assert {reason: n for (reason,), n in reasons.items() if n} == waiting
    assert ("uid-4711",) not in reasons
    assert set(values(made, "partita_queue_jobs", partition="empty").values()) == {0}
    assert values(made, "partita_jobs_without_partition") == {(): 1}
    assert ("nowhere", "Queued") not in values(made, "partita_jobs")


def a_state_with_claims() -> State:
    """One claim that runs and is idle, one that waits, one that can never start, one of Kueue."""
    gpu = server_body(allocations={"uid-serve-1-gpu": claim_entry()})
    idle = {"memory": "1Gi", "idleSince": "2026-01-01T12:00:00Z"}
    gpu["status"]["usage"] = {"jobs": {"uid-serve-1-gpu": idle}}
    state = a_state(partition_body(), *gpus_up(gpu))
    says = {
        "serve-1": "Allocated: 8.0 GiB",
        "serve-2": "InsufficientMemory: needs 8.0 GiB",
        "serve-3": "NeverFits: needs 800.0 GiB",
        "serve-4": "",
    }
    for name, said in says.items():
        notes = {"partita.dev/status": said} if said else {}
        state.apply_claim(claim_body(f"{name}-gpu", pod=name, metadata={"annotations": notes}))
        gates = ("kueue.x-k8s.io/admission",) if name == "serve-4" else ()
        state.apply_pod(claiming_pod_body(name, gates=gates))
    return state


def test_claims_are_counted_by_phase_and_wait_in_the_same_queue():
    state = a_state_with_claims()
    made = metrics(state)
    phases = values(made, "partita_claims", partition="shared")
    counted = {phase: n for (phase,), n in phases.items() if n}
    assert counted == {"Gated": 1, "Queued": 2, "Assigned": 1}
    reasons = values(made, "partita_queue_jobs", partition="shared")
    waiting = {reason: n for (reason,), n in reasons.items() if n}
    assert waiting == {"InsufficientMemory": 1, "NeverFits": 1}
    assert values(made, OLDEST) == {("shared",): START.timestamp()}
    assert values(made, "partita_gpu_idle_claims") == {("shared", "shared-0"): 1}
    status = partition_status(state.partitions["shared"], state, None, at(0))
    assert (status.queue.queued, status.queue.running) == (2, 1)


def test_since_when_the_oldest_waits_that_time_can_help():
    ended = Attempt(number=1, end_time=at(50), outcome=Outcome.FAILED)
    again = SharedGPUJobStatus(attempts=(ended,)).dump()
    stuck = {"phase": "Queued", "reason": "NeverFits"}
    state = a_state(partition_body(), job_body("stuck", status=stuck))
    assert values(metrics(state), OLDEST) == {}
    state.apply_job(job_body("again", status=again))
    assert values(metrics(state), OLDEST) == {("shared",): at(50).timestamp()}
    state.apply_job(job_body("first"))
    assert values(metrics(state), OLDEST) == {("shared",): START.timestamp()}


# GPUs.


def test_a_gpu_with_allocations_usage_and_mps():
    unknown = {"count": 2, "inPods": 1, "memory": "1Gi"}
    usage = {"memory": "3Gi", "gpuUtilization": 42, "unknownProcesses": unknown}
    told = {"usage": usage, "mps": {"state": "Faulted", "clients": 3}}
    ledger = {"claim-a": allocation("a"), "claim-b": allocation("b", memory=GIB)}
    state = a_state(partition_body(gpus=2), *gpus_up(server_body(allocations=ledger, status=told)))
    made = metrics(state)
    gpu = ("shared", "shared-0")
    assert values(made, "partita_partition_wanted_gpus") == {("shared",): 2}
    assert values(made, "partita_gpu_memory_bytes") == {gpu: 40 * GIB}
    allocatable = 40 * 1024 * 93 // 100 << 20
    assert values(made, "partita_gpu_allocatable_memory_bytes") == {gpu: allocatable}
    assert values(made, "partita_gpu_allocated_memory_bytes") == {gpu: 9 * GIB}
    assert values(made, "partita_gpu_allocated_jobs") == {gpu: 2}
    assert values(made, "partita_gpu_used_memory_bytes") == {gpu: 3 * GIB}
    assert values(made, "partita_gpu_utilization_ratio") == {gpu: 0.42}
    assert values(made, "partita_gpu_unknown_processes") == {gpu: 2}
    assert values(made, "partita_mps_clients") == {gpu: 3}
    assert values(made, "partita_mps_state", gpu="shared-0", partition="shared") == {
        ("Starting",): 0, ("Checking",): 0, ("Ready",): 0, ("Faulted",): 1, ("Stopped",): 0,
    }  # fmt: skip
    states = values(made, "partita_gpu_state")
    assert [labels for labels, value in states.items() if value] == [(*gpu, "Ready")]
    assert len(states) == len(get_args(GPUState))
    ((info, one),) = values(made, "partita_gpu_info").items()
    assert info[:4] == (*gpu, "node-1", "NVIDIA A100-SXM4-40GB")
    assert (info[5], one) == ("MPS", 1)


def test_restarts_and_canaries_of_mps():
    canary = {"checks": 5, "failures": 2, "durationMilliseconds": 1500}
    mps = {"restarts": {"Wedged": 1, "UncleanEnd": 3}, "canary": canary}
    made = metrics(a_state(partition_body(), *gpus_up(server_body(status={"mps": mps}))))
    gpu = {"gpu": "shared-0", "partition": "shared"}
    restarts = values(made, "partita_mps_restarts_total", **gpu)
    assert restarts.keys() == {(reason,) for reason in get_args(RestartReason)}
    assert {k: v for k, v in restarts.items() if v} == {("Wedged",): 1, ("UncleanEnd",): 3}
    assert values(made, "partita_mps_canaries_total", **gpu) == {("Passed",): 3, ("Failed",): 2}
    assert values(made, "partita_mps_canary_seconds", **gpu) == {(): 1.5}


def test_what_limits_memory_and_which_limits_are_wrong():
    wrong = {"attempt": 1, "expected": "8704Mi"}
    jobs = {"u": {"memory": "1Gi", "limitMismatch": wrong}, "v": {"memory": "1Gi"}}
    status = {"enforcement": "Driver", "usage": {"jobs": jobs}}
    made = metrics(a_state(partition_body(), *gpus_up(server_body(status=status))))
    gpu = ("shared", "shared-0")
    assert values(made, "partita_gpu_wrong_memory_limits") == {gpu: 1}
    assert values(made, "partita_gpu_enforcement") == {(*gpu, "Driver"): 1, (*gpu, "Client"): 0}


def test_what_no_agent_has_told_is_left_out():
    made = metrics(a_state(partition_body(), *gpus_up(server_body(mode="TimeSlicing"))))
    for name in ("gpu_used_memory_bytes", "gpu_utilization_ratio", "gpu_enforcement", "mps_state"):
        assert values(made, f"partita_{name}") == {}
    no_canary = a_state(partition_body(), *gpus_up(server_body(status={"mps": {}})))
    assert values(metrics(no_canary), "partita_mps_canary_seconds") == {}


def test_a_gpu_whose_partition_is_gone_is_being_drained():
    made = metrics(a_state(*gpus_up(server_body())))
    states = values(made, "partita_gpu_state")
    assert [labels[2] for labels, value in states.items() if value] == ["Draining"]
    assert values(made, "partita_gpu_allocatable_memory_bytes") == {}


# Policies, counts, the rest.


def test_what_the_policies_did():
    runner = PolicyRunner(PolicySpec(name="sjf", shadow=("tetris",)))
    runner.cycles, runner.fallbacks, runner.rejected = 10, 2, 5
    runner.shadow_counts["tetris"] = ShadowCount(cycles=9, agreed=7, failures=1)
    made = metrics(a_state(partition_body(), partition_body("new")), {"shared": runner})
    charge, shadow = ("shared", "sjf"), ("shared", "tetris")
    assert values(made, "partita_policy_decisions_total") == {charge: 10}
    assert values(made, "partita_policy_fallbacks_total") == {charge: 2}
    assert values(made, "partita_guard_rejections_total") == {charge: 5}
    assert values(made, "partita_shadow_decisions_total") == {shadow: 9}
    assert values(made, "partita_shadow_agreements_total") == {shadow: 7}
    assert values(made, "partita_shadow_failures_total") == {shadow: 1}
    assert values(made, "partita_policy_healthy") == {charge: 1}
    runner.failure = "it raised"
    assert values(made, "partita_policy_healthy") == {charge: 0}


def test_writes_are_told_apart_as_kubernetes_does():
    writes = Counter({("patch/status", "gpuservers"): 4, ("create", "pods"): 2})
    found = values(metrics(a_state(), writes=writes), "partita_api_writes_total")
    assert found == {("patch", "gpuservers", "status"): 4, ("create", "pods", ""): 2}


def test_what_could_not_be_read_or_recorded():
    state = a_state(partition_body())
    take(state, job_body(gpuMemory="8Ei"))
    made = metrics(state, unrecorded=lambda: 3)
    found = values(made, "partita_unreadable_objects")
    assert found["sharedgpujobs", "spec.gpuMemory"] == 1
    assert found["gpupartitions", ""] == 0
    assert values(made, "partita_unrecorded_decisions_total") == {(): 3}
    assert values(metrics(state), "partita_unrecorded_decisions_total") == {}


def test_what_never_happened_is_counted_as_none():
    made = metrics(a_state(partition_body()))
    for name in ("jobs_finished", "out_of_memory_resizes", "attempts", "claim_steps"):
        assert set(values(made, f"partita_{name}_total", partition="shared").values()) == {0}


def test_a_partition_that_is_gone_is_not_told_of_any_more():
    state = a_state(partition_body(), partition_body("other"))
    made = metrics(state)
    made.tally.written(a_job(), ENDED)
    assert values(made, "partita_attempt_run_seconds_count") == {("shared",): 1}
    take(state, partition_body(), deleted=True)
    names = {s.labels.get("partition") for f in made.registry.collect() for s in f.samples}
    assert names == {None, "other"}


@pytest.mark.parametrize("namespace", ["team-a", ""])
def test_usage_is_told_by_partition_and_if_wanted_by_namespace(namespace: str):
    gpu = server_body(allocations={"u": allocation(memory=10 * GIB, since=at(0))})
    state = a_state(partition_body(), partition_body("idle"), *gpus_up(gpu))
    meter = UsageMeter(state, by_namespace=bool(namespace))
    meter.resume((), at(0))
    made = metrics(state, meter=meter)
    idle = {} if namespace else {("idle", ""): 0}
    for now in (10, 20):
        meter.read(at(now))
        found = values(made, "partita_allocated_memory_byte_seconds_total")
        assert found == {("shared", namespace): 10 * GIB * now} | idle
