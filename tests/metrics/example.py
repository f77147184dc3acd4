"""An operator and an agent all of whose metrics have values."""

from collections import Counter, deque
from collections.abc import Iterator
from types import SimpleNamespace as Some
from typing import Any

from prometheus_client import Metric

from partita.accounting.usage_meter import UsageMeter
from partita.agent.metrics import AgentMetrics
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.partition import PolicySpec
from partita.process.metrics.page import Metrics
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.policy_runner import Answer, PolicyRunner, ShadowCount
from partita_policies.start_times.calibration import Accuracy
from partita_policies.types import Snapshot
from support.builders import (
    START,
    a_job,
    a_server,
    a_state,
    at,
    gpus_up,
    job_body,
    partition_body,
    server_body,
)

__all__ = ["ENDED", "agent", "all_metrics", "operator", "series"]

ENDED = SharedGPUJobStatus(
    attempts=(
        Attempt(
            number=1,
            queued_time=at(0),
            booked_time=at(40),
            start_time=at(41),
            first_use_time=at(42),
            end_time=at(50),
            outcome=Outcome.SUCCEEDED,
        ),
    )
)


def operator() -> Metrics:
    """A leader that has done everything that is counted."""
    canary = {"checks": 5, "failures": 2, "durationMilliseconds": 1500}
    status = {"enforcement": "Driver", "mps": {"canary": canary}, "usage": {"jobs": {}}}
    quotas = [{"namespace": "team-a", "weight": 2}]
    state = a_state(
        partition_body(quotas=quotas), *gpus_up(server_body(status=status)), job_body("waits")
    )
    runner = PolicyRunner(PolicySpec(name="sjf", shadow=("tetris",)))
    runner.shadow_counts["tetris"] = ShadowCount()
    made = Metrics(
        state,
        UsageMeter(state),
        leads=lambda: True,
        writes=Counter({("patch/status", "gpuservers"): 4}),
        unrecorded=lambda: 3,
    )
    made.lead({"shared": runner}.get, lambda: [("shared", Accuracy(10, 9, deque([30.0])))])
    made.tally.written(a_job(), ENDED)
    snapshot = Snapshot(partition="shared", time=0.0, jobs=(), gpus=())
    made.tally.decided(CycleResult(snapshot=snapshot, answer=Answer((), "sjf", seconds=0.25)))
    for histogram in (made.tally.claim_queued_time, made.tally.claim_start_time):
        made.tally.took(histogram, "shared", START, at(5))
    return made


def agent() -> AgentMetrics:
    """An agent with a Pod on its GPU."""
    jobs: Any = Some(
        ledger=Some(
            server=a_server(),
            allocations={"a": Some(uid="u", namespace="team-a", pod="train-1", memory=3)},
        ),
        sample=Some(used=2),
        utilization=Some(value=50),
        processes_of={"a": 1},
        usage=lambda: {"u": Some(memory=1, peak=2, utilization=40)},
    )
    return AgentMetrics("shared-0", jobs)


def all_metrics() -> Iterator[Metric]:
    """Partita's metrics of both, without those of the operator's process."""
    for metric in (*operator().registry.collect(), *agent().collect()):
        if metric.name.startswith("partita_"):
            yield metric


def series() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every series that is exported, and its labels."""
    for metric in all_metrics():
        for sample in metric.samples:
            yield sample.name, tuple(sample.labels)
