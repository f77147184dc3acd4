"""Random workloads of three teams under tight quotas: each comes to its end, nothing is left.

Kueue borrows, lends, and takes back what is not ready in time; in a run of its own it preempts too.
SharedGPUJobs, which Kueue does not see, take a part of the same GPUs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from kube_scheduler.cluster import SchedulingCluster
from kube_scheduler.kueue.queues import PREEMPTS, Queues
from kube_scheduler.kueue.submissions import KINDS, PRIORITIES, SIZES, Submissions, Team, draw
from support.api import Api

QUOTAS = {"team-a": 30, "team-b": 30, "team-c": 20}
"""GiB of each team, in a cohort: together a little more than both GPUs have, 2 x 36 GiB. So Kueue
also admits what Partita has no room for, and Jobs of which only a part has room."""


@pytest.fixture
async def priorities(api: Api) -> AsyncIterator[None]:
    """PriorityClasses of the test."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in PRIORITIES.items():
        (await api.post(path, {"metadata": {"name": name}, "value": value})).ok()
    yield
    for name in PRIORITIES:
        await api.delete(f"{path}/{name}")


@pytest.mark.timeout(1800, func_only=True)
@pytest.mark.usefixtures("priorities")
@pytest.mark.parametrize("preemption", [None, PREEMPTS], ids=["waits", "preempts"])
async def test_random_submissions_all_end_and_leave_nothing(
    cluster: SchedulingCluster,
    queues: Queues,
    preemption: dict[str, Any] | None,
    pytestconfig: pytest.Config,
) -> None:
    count, seed = pytestconfig.getoption("--submissions"), pytestconfig.getoption("--seed")
    random = Random(seed)
    async with cluster.sharing(1, 1):
        teams = []
        for queue, quota in QUOTAS.items():
            namespace = await cluster.another_namespace()
            await cluster.templates(*SIZES, namespace=namespace)
            await queues.add(queue, namespace, quota, cohort="all", preemption=preemption)
            teams.append(Team(namespace, queue))
        submissions = Submissions(cluster)
        # A Pod that Kueue 0.19.2 preempts before it has removed its gate may keep it for many minutes
        # (docs/how-to/use-with-kueue.md), so Jobs alone are preempted here.
        kinds = ("job", "shared") if preemption else KINDS
        drawn = [draw(random, number, teams, kinds) for number in range(count)]
        await submissions.carry_out(drawn)
        await cluster.history.until(
            lambda: not cluster.claims() and not cluster.ledger(),
            what=lambda: (cluster.claims(), cluster.ledger()),
        )
        for queue in QUOTAS:
            await queues.used(queue, "0")
            await queues.pending(queue, 0)
