"""What a scrape finds, on states that a test makes."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from partita.accounting.usage_meter import UsageMeter
from partita.decide.policy_runner import PolicyRunner, ShadowCount
from partita.informer.state import State
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.gpu_server import RestartReason
from partita.models.partition import PolicySpec
from partita.operator.metrics import claim_definitions as c
from partita.operator.metrics import definitions as d
from partita.operator.metrics.definitions import SECTIONS, Metric
from partita.operator.metrics.page import Metrics
from partita.partitions.partition_status import partition_status
from partita.reconcile.gpu_state import ServerState
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

ALL = [metric for section in SECTIONS for metric in section.metrics]
RUNNERS: Mapping[str, PolicyRunner] = {}


def metrics(state: State, runners: Mapping[str, PolicyRunner] = RUNNERS, **more: Any) -> Metrics:
    options: dict[str, Any] = {"leads": lambda: True, "writes": Counter(), **more}
    made = Metrics(state, options.pop("meter", UsageMeter(state)), **options)
    made.lead(runners.get)
    return made


def scrape(made: Metrics) -> dict[str, Family]:
    page, _ = made.render("text/plain")
    return {family.name: family for family in parse(page.decode())}


def values(made: Metrics, metric: Metric, **where: str) -> dict[tuple[str, ...], float]:
    """Values of a figure by its labels, those of `where` left out."""
    family = scrape(made).get(metric.name.removesuffix("_total"))
    return {
        tuple(sample.labels[name] for name in metric.labels if name not in where): sample.value
        for sample in (family.samples if family else ())
        if sample.name == metric.name and where.items() <= sample.labels.items()
    }


# Definitions.


def test_names_follow_the_conventions():
    names = [metric.name for metric in ALL]
    assert len(set(names)) == len(names)
    for metric in ALL:
        assert re.fullmatch(r"partita_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name
        assert metric.help.endswith("."), metric.name
        # Base units alone: https://prometheus.io/docs/practices/naming/#base-units
        assert not re.search(r"milli|micro|minutes|hours|_[kmg]i?b|percent|_ms\b", metric.name)


def test_no_figure_is_told_apart_by_what_grows_without_bound():
    assert {label for metric in ALL for label in metric.labels} == {
        "version", "verb", "resource", "subresource", "partition", "phase", "reason", "result",
        "outcome", "policy", "gpu", "node", "product", "uuid", "mode", "state", "field",
        "enforcement", "workload_namespace", "step",
    }  # fmt: skip


# Leading.


def test_one_that_waits_to_lead_says_nothing_of_queues_and_gpus():
    state = a_state(partition_body(), job_body(), *gpus_up(server_body()))
    made = Metrics(
        state, UsageMeter(state), leads=lambda: False, writes=Counter({("create", "pods"): 3})
    )
    families = scrape(made)
    assert [s.value for s in families["partita_leader"].samples] == [0]
    ours = {name for name in families if name.startswith("partita_")}
    assert ours == {"partita_leader", "partita_build_info"}
    assert "process_resident_memory_bytes" in families


def test_one_whose_lease_ran_out_says_so_at_once():
    holds = True
    made = metrics(a_state(), leads=lambda: holds)
    assert values(made, d.LEADER) == {(): 1}
    holds = False
    assert values(made, d.LEADER) == {(): 0}


# The queue.


def test_jobs_are_counted_by_phase_and_what_waits_by_reason():
    ledger = {"uid-on": allocation("on")}
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
    phases = values(made, d.JOBS, partition="shared")
    assert phases == {
        ("Queued",): 4, ("Assigned",): 0, ("Running",): 1,
        ("Succeeded",): 1, ("Failed",): 0, ("Suspended",): 1,
    }  # fmt: skip
    reasons = values(made, d.QUEUE, partition="shared")
    waiting = {"Scheduling": 1, "InsufficientMemory": 1, "NeverFits": 1, "Other": 1}
    assert {reason: n for (reason,), n in reasons.items() if n} == waiting
    assert ("uid-4711",) not in reasons
    assert set(values(made, d.QUEUE, partition="empty").values()) == {0}
    assert values(made, d.WITHOUT_PARTITION) == {(): 1}
    assert ("nowhere", "Queued") not in values(made, d.JOBS)


def test_the_queue_is_as_long_as_the_partition_s_status_says():
    ledger = {"uid-0": allocation("0")}
    jobs = [job_body(str(i), suspend=i % 5 == 1, status={}) for i in range(20)]
    state = a_state(partition_body(), *gpus_up(server_body(allocations=ledger)), *jobs)
    partition = state.partitions["shared"]
    status = partition_status(partition, state, None, at(0))
    assert status.queue is not None
    assert sum(values(metrics(state), d.QUEUE).values()) == status.queue.queued == 15


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
    phases = values(made, c.CLAIMS, partition="shared")
    assert {phase: n for (phase,), n in phases.items() if n} == {
        "Gated": 1, "Queued": 2, "Assigned": 1,
    }  # fmt: skip
    reasons = values(made, d.QUEUE, partition="shared")
    assert {reason: n for (reason,), n in reasons.items() if n} == {
        "InsufficientMemory": 1, "NeverFits": 1,
    }  # fmt: skip
    assert values(made, d.OLDEST) == {("shared",): START.timestamp()}
    assert values(made, d.GPU_IDLE) == {("shared", "shared-0"): 1}
    status = partition_status(state.partitions["shared"], state, None, at(0))
    assert (status.queue.queued, status.queue.running) == (2, 1)


def test_since_when_the_oldest_waits_that_time_can_help():
    ended = Attempt(number=1, end_time=at(50), outcome=Outcome.FAILED)
    again = SharedGPUJobStatus(attempts=(ended,)).dump()
    stuck = {"phase": "Queued", "reason": "NeverFits"}
    state = a_state(partition_body(), job_body("stuck", status=stuck))
    assert values(metrics(state), d.OLDEST) == {}
    state.apply_job(job_body("again", status=again))
    assert values(metrics(state), d.OLDEST) == {("shared",): at(50).timestamp()}
    state.apply_job(job_body("first"))
    assert values(metrics(state), d.OLDEST) == {("shared",): START.timestamp()}


# GPUs.


def test_a_gpu_with_allocations_usage_and_mps():
    unknown = {"count": 2, "inPods": 1, "memory": "1Gi"}
    usage = {"memory": "3Gi", "gpuUtilization": 42, "unknownProcesses": unknown}
    told = {"usage": usage, "mps": {"state": "Faulted", "clients": 3}}
    ledger = {"uid-a": allocation("a"), "uid-b": allocation("b", memory=GIB)}
    state = a_state(partition_body(gpus=2), *gpus_up(server_body(allocations=ledger, status=told)))
    made = metrics(state)
    gpu = ("shared", "shared-0")
    assert values(made, d.WANTED) == {("shared",): 2}
    assert values(made, d.GPU_MEMORY) == {gpu: 40 * GIB}
    assert values(made, d.GPU_ALLOCATABLE) == {gpu: 40 * 1024 * 93 // 100 << 20}
    assert values(made, d.GPU_ALLOCATED) == {gpu: 9 * GIB}
    assert values(made, d.GPU_JOBS) == {gpu: 2}
    assert values(made, d.GPU_USED) == {gpu: 3 * GIB}
    assert values(made, d.GPU_UTILIZATION) == {gpu: 0.42}
    assert values(made, d.GPU_UNKNOWN) == {gpu: 2}
    assert values(made, d.MPS_CLIENTS) == {gpu: 3}
    assert values(made, d.MPS_STATE, gpu="shared-0", partition="shared") == {
        ("Starting",): 0, ("Checking",): 0, ("Ready",): 0, ("Faulted",): 1, ("Stopped",): 0,
    }  # fmt: skip
    states = values(made, d.GPU_STATE)
    assert [labels for labels, value in states.items() if value] == [(*gpu, "Ready")]
    assert len(states) == len(get_args(ServerState))
    ((info, one),) = values(made, d.GPU_INFO).items()
    assert info[:4] == (*gpu, "node-1", "NVIDIA A100-SXM4-40GB")
    assert (info[5], one) == ("MPS", 1)


def test_wedges_restarts_and_canaries_of_mps():
    canary = {"checks": 5, "failures": 2, "durationMilliseconds": 1500}
    mps = {"wedges": 1, "restarts": {"Wedged": 1, "UncleanEnd": 3}, "canary": canary}
    made = metrics(a_state(partition_body(), *gpus_up(server_body(status={"mps": mps}))))
    gpu = {"gpu": "shared-0", "partition": "shared"}
    assert values(made, d.MPS_WEDGES, **gpu) == {(): 1}
    restarts = values(made, d.MPS_RESTARTS, **gpu)
    assert restarts.keys() == {(reason,) for reason in get_args(RestartReason)}
    assert {k: v for k, v in restarts.items() if v} == {("Wedged",): 1, ("UncleanEnd",): 3}
    assert values(made, d.CANARIES, **gpu) == {("Passed",): 3, ("Failed",): 2}
    assert values(made, d.CANARY_TIME, **gpu) == {(): 1.5}


def test_before_the_first_canary_has_ended_no_duration_is_known():
    made = metrics(a_state(partition_body(), *gpus_up(server_body(status={"mps": {}}))))
    assert values(made, d.CANARY_TIME) == {}


def test_what_limits_memory_and_which_limits_are_wrong():
    wrong = {"attempt": 1, "expected": "8704Mi"}
    jobs = {"u": {"memory": "1Gi", "limitMismatch": wrong}, "v": {"memory": "1Gi"}}
    status = {"enforcement": "Driver", "usage": {"jobs": jobs}}
    made = metrics(a_state(partition_body(), *gpus_up(server_body(status=status))))
    gpu = ("shared", "shared-0")
    assert values(made, d.GPU_WRONG_LIMITS) == {gpu: 1}
    assert values(made, d.GPU_ENFORCEMENT) == {(*gpu, "Driver"): 1, (*gpu, "Client"): 0}


def test_what_no_agent_has_told_is_left_out():
    made = metrics(a_state(partition_body(), *gpus_up(server_body(mode="TimeSlicing"))))
    for metric in (d.GPU_USED, d.GPU_UTILIZATION, d.MPS_STATE, d.MPS_CLIENTS, d.GPU_ENFORCEMENT):
        assert values(made, metric) == {}


def test_a_gpu_whose_partition_is_gone_is_being_drained():
    made = metrics(a_state(*gpus_up(server_body())))
    states = values(made, d.GPU_STATE)
    assert [labels[2] for labels, value in states.items() if value] == ["Draining"]
    assert values(made, d.GPU_ALLOCATABLE) == {}


# Policies, counts, the rest.


def test_what_the_policies_did():
    runner = PolicyRunner(PolicySpec(name="sjf", shadow=("tetris",)))
    runner.cycles, runner.fallbacks, runner.rejected = 10, 2, 5
    runner.shadow_counts["tetris"] = ShadowCount(cycles=9, agreed=7, failures=1)
    made = metrics(a_state(partition_body(), partition_body("new")), {"shared": runner})
    charge, shadow = ("shared", "sjf"), ("shared", "tetris")
    assert values(made, d.DECISIONS) == {charge: 10}
    assert values(made, d.FALLBACKS) == {charge: 2}
    assert values(made, d.REJECTIONS) == {charge: 5}
    assert values(made, d.SHADOW_DECISIONS) == {shadow: 9}
    assert values(made, d.SHADOW_AGREEMENTS) == {shadow: 7}
    assert values(made, d.SHADOW_FAILURES) == {shadow: 1}
    assert values(made, d.HEALTHY) == {charge: 1}
    runner.failure = "it raised"
    assert values(made, d.HEALTHY) == {charge: 0}


def test_writes_are_told_apart_as_kubernetes_does():
    writes = Counter({("patch/status", "gpuservers"): 4, ("create", "pods"): 2})
    found = values(metrics(a_state(), writes=writes), d.API_WRITES)
    assert found == {("patch", "gpuservers", "status"): 4, ("create", "pods", ""): 2}


def test_what_could_not_be_read_or_recorded():
    state = a_state(partition_body())
    take(state, job_body(gpuMemory="8Ei"))
    made = metrics(state, unrecorded=lambda: 3)
    found = values(made, d.UNREADABLE)
    assert found["sharedgpujobs", "spec.gpuMemory"] == 1
    assert found["gpupartitions", ""] == 0
    assert values(made, d.UNRECORDED) == {(): 3}
    assert values(metrics(state), d.UNRECORDED) == {}


def an_ended_attempt() -> SharedGPUJobStatus:
    attempt = Attempt(
        number=1,
        queued_time=at(0),
        booked_time=at(40),
        start_time=at(41),
        end_time=at(50),
        outcome=Outcome.SUCCEEDED,
    )
    return SharedGPUJobStatus(attempts=(attempt,))


def test_times_are_told_in_buckets_that_add_up():
    made = metrics(a_state(partition_body()))
    made.tally.written(a_job(), an_ended_attempt())
    family = scrape(made)["partita_attempt_queue_seconds"]
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert (buckets["30.0"], buckets["60.0"], buckets["+Inf"]) == (0, 1, 1)
    (total,) = [s.value for s in family.samples if s.name.endswith("_sum")]
    assert total == 40
    found = values(made, d.ATTEMPTS, partition="shared")
    assert found == {(outcome.value,): outcome is Outcome.SUCCEEDED for outcome in Outcome}


def test_what_never_happened_is_counted_as_none():
    made = metrics(a_state(partition_body()))
    assert values(made, d.FINISHED) == {("shared", "Succeeded"): 0, ("shared", "Failed"): 0}
    assert values(made, d.RESIZES) == {("shared",): 0}
    assert set(values(made, d.ATTEMPTS).values()) == {0}


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "line\nbreak"])
def test_no_name_breaks_the_page(name: str):
    body = server_body(status={"product": name})
    made = metrics(a_state(partition_body(), *gpus_up(body)))
    ((labels, _),) = values(made, d.GPU_INFO).items()
    assert labels[3] == name


def test_both_formats_that_prometheus_asks_for_can_be_read():
    made = metrics(a_state(partition_body(), *gpus_up(server_body())))
    made.tally.written(a_job(), an_ended_attempt())
    page, kind = made.render("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    names = {family.name for family in parse_openmetrics(page.decode())}
    assert names == scrape(made).keys()
