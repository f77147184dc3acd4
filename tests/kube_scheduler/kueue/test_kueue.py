"""Kueue decides when a workload may start, Partita on which GPU it gets its slice."""

from __future__ import annotations

from typing import Any

from kube_scheduler.cluster import FOREVER, SchedulingCluster, workload_pod
from kube_scheduler.kueue.queues import PREEMPTS, QUEUE_LABEL, Queues, group_of

QUEUE = "team"
QUEUED = {"labels": {QUEUE_LABEL: QUEUE}}


async def bystander(cluster: SchedulingCluster) -> None:
    """Let a Pod that Kueue does not manage come and go: Partita has looked at all claims since."""
    await cluster.create_pod("bystander", workload_pod(2, 0.1))
    await cluster.succeeds("bystander")


async def test_a_gated_pod_is_ignored_until_kueue_admits_it(
    cluster: SchedulingCluster, queues: Queues
) -> None:
    async with cluster.sharing(1):
        await cluster.templates(2, 6)
        await queues.add(QUEUE, cluster.namespace, 4)
        await cluster.create_pod("train", workload_pod(6), **QUEUED)
        await queues.pending(QUEUE, 1)
        claim = await cluster.claim_of("train")
        await bystander(cluster)
        assert not cluster.was_allocated(claim)
        assert "partita.dev/status" not in claim["metadata"].get("annotations", {})
        await queues.set_quota(QUEUE, 8)
        await cluster.succeeds("train")
        assert cluster.was_allocated(claim)


async def test_the_pods_of_a_group_are_admitted_together_or_not_at_all(
    cluster: SchedulingCluster, queues: Queues
) -> None:
    async with cluster.sharing(2):
        await cluster.templates(6)
        await queues.add(QUEUE, cluster.namespace, 20)
        await cluster.create_pod("before", workload_pod(6, FOREVER), **QUEUED)
        await cluster.runs("before")
        await queues.used(QUEUE, "6Gi")
        names = [f"worker-{number}" for number in range(3)]
        group = group_of("workers", len(names))
        labels = QUEUED["labels"] | group["labels"]
        for name in names:
            await cluster.create_pod(
                name, workload_pod(6), labels=labels, annotations=group["annotations"]
            )
        await queues.pending(QUEUE, 1)
        # Two of them would fit into the quota, and all of them onto the GPUs.
        claims = [await cluster.claim_of(name) for name in names]
        assert not any(cluster.was_allocated(claim) for claim in claims)
        await cluster.delete_pod("before")
        for name in names:
            await cluster.succeeds(name)


def running(cluster: SchedulingCluster, job: str) -> dict[str, Any] | None:
    """The Pod of a Job that runs."""
    return next(
        (
            pod
            for pod in cluster.history.all("pods", cluster.namespace)
            if pod["metadata"]["name"].startswith(f"{job}-")
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ),
        None,
    )


async def test_a_job_that_kueue_preempts_gives_its_slice_back_and_runs_again_later(
    cluster: SchedulingCluster, queues: Queues, urgent: str
) -> None:
    async with cluster.sharing(1):
        await cluster.templates(6)
        await queues.add(QUEUE, cluster.namespace, 8, preemption=PREEMPTS)
        await cluster.create_job("train", workload_pod(6, FOREVER), 1, **QUEUED)
        first = await cluster.history.until(lambda: running(cluster, "train"))
        claim = await cluster.claim_of(first["metadata"]["name"])
        await cluster.create_pod("urgent", workload_pod(6, priorityClassName=urgent), **QUEUED)
        await cluster.succeeds("urgent")
        assert claim["metadata"]["uid"] not in cluster.ledger()
        again = await cluster.history.until(lambda: running(cluster, "train"))
        await cluster.end(again, "Succeeded")
        await cluster.job_succeeds("train")


async def test_a_team_takes_back_what_another_has_borrowed(
    cluster: SchedulingCluster, queues: Queues
) -> None:
    async with cluster.sharing(1):
        other = await cluster.another_namespace()
        await cluster.templates(6)
        await cluster.templates(6, namespace=other)
        await queues.add(QUEUE, cluster.namespace, 6, cohort="all", preemption=PREEMPTS)
        await queues.add("other", other, 6, cohort="all", preemption=PREEMPTS)
        two = ("train", "train-more")
        for name in two:
            await cluster.create_pod(name, workload_pod(6, FOREVER), **QUEUED)
            await cluster.runs(name)
        await cluster.create_pod(
            "returns", workload_pod(6), namespace=other, labels={QUEUE_LABEL: "other"}
        )
        await cluster.succeeds("returns", other)

        # Kueue ends the one that it admitted last; within the same second that may be either.
        def left() -> list[dict[str, Any]]:
            return [pod for name in two if (pod := cluster.pod(name))]

        await cluster.history.until(lambda: len(left()) == 1, what=left)
        assert left()[0]["status"]["phase"] == "Running"
        await cluster.history.until(lambda: len(cluster.ledger()) == 1, what=cluster.ledger)
