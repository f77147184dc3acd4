"""What metrics cost: a scrape of a large cluster, and what is done at each event.

PYTHONPATH=tests .venv/bin/python -m bench.metrics
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from partita.decide.cycle_result import CycleResult
from partita.decide.policy_runner import Answer, PolicyRunner
from partita.informer.state import State
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.models.partition import PolicySpec
from partita.operator.metrics.page import Metrics
from partita.operator.metrics.tally import Tally
from partita_policies.types import Snapshot
from support.builders import (
    GIB,
    a_job,
    a_state,
    allocation,
    at,
    gpus_up,
    job_body,
    partition_body,
    server_body,
)

PARTITIONS, GPUS_EACH, JOBS, RUNNING_EACH = 4, 16, 2000, 8
REPEATS = 50


def large() -> State:
    """64 GPUs in four partitions, 512 jobs on them, and as many more as make 2,000."""
    state = a_state(*(partition_body(f"p{p}", gpus=GPUS_EACH) for p in range(PARTITIONS)))
    told = {
        "usage": {"memory": "30Gi", "gpuUtilization": 60},
        "mps": {"state": "Ready", "clients": RUNNING_EACH},
    }
    names = [(p, g) for p in range(PARTITIONS) for g in range(GPUS_EACH)]
    servers, jobs = [], []
    for p, g in names:
        mine = [f"run-{p}-{g}-{n}" for n in range(RUNNING_EACH)]
        ledger = {f"uid-{n}": allocation(n, memory=4 * GIB) for n in mine}
        servers.append(server_body(f"p{p}-{g}", partition=f"p{p}", allocations=ledger, status=told))
        jobs += [job_body(n, partition=f"p{p}", status={"phase": "Running"}) for n in mine]
    queued = {"phase": "Queued", "reason": "InsufficientMemory"}
    jobs += [
        job_body(f"wait-{n}", partition=f"p{n % PARTITIONS}", status=queued)
        for n in range(JOBS - len(jobs))
    ]
    for body in gpus_up(*servers):
        if "partition" in body.get("spec", {}):
            state.apply_server(body)
        elif "nodeName" in body.get("spec", {}):
            state.apply_pod(body)
        else:
            state.apply_node(body)
    for body in jobs:
        state.apply_job(body)
    return state


def cost(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of one call: the median of five rounds."""
    work()
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeats):
            work()
        rounds.append((time.process_time() - began) / repeats)
    return sorted(rounds)[2]


def main() -> None:
    state = large()
    runners = {name: PolicyRunner(PolicySpec(shadow=("sjf",))) for name in state.partitions}
    metrics = Metrics(state, leads=lambda: True, writes=Counter({("create", "pods"): 1}))
    metrics.lead(runners.get)
    ended = Attempt(
        number=1,
        queued_time=at(0),
        booked_time=at(1),
        start_time=at(2),
        first_use_time=at(3),
        end_time=at(60),
        outcome=Outcome.SUCCEEDED,
    )
    job, status = a_job(), SharedGPUJobStatus(attempts=(ended,))
    for name in state.partitions:
        spec = job.spec.model_copy(update={"partition": name})
        metrics.tally.written(job.model_copy(update={"spec": spec}), status)
    page, _ = metrics.render("")
    samples = sum(not line.startswith(b"#") for line in page.splitlines())
    print(f"{len(state.servers)} GPUs, {len(state.jobs)} jobs, {len(state.partitions)} partitions")
    print(f"a scrape: {samples} samples, {len(page) / 1024:.0f} KiB")
    print(f"a scrape: {cost(lambda: metrics.render(''), REPEATS) * 1e3:.1f} ms")
    tally = Tally()
    print(f"a status written: {cost(lambda: tally.written(job, status), 5000) * 1e6:.1f} us")
    snapshot = Snapshot(partition="shared", time=0.0, jobs=(), gpus=())
    result = CycleResult(snapshot=snapshot, answer=Answer((), "fifo", seconds=0.01))
    print(f"a decision: {cost(lambda: tally.decided(result), 5000) * 1e6:.1f} us")


if __name__ == "__main__":
    main()
