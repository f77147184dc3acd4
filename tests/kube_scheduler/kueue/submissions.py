"""Random workloads for Kueue's queues, each of which is to come to its end."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from kube_scheduler.cluster import FOREVER, PARTITION, SchedulingCluster, job_ended, workload_pod
from kube_scheduler.kueue.queues import GROUP, QUEUE_LABEL, group_of
from support.history import GROUP_PATH, Body
from support.system import SPEED

__all__ = ["KINDS", "PRIORITIES", "SIZES", "Submission", "Submissions", "Team", "draw"]

T = TypeVar("T")

KINDS = ("job", "job", "deployment", "group", "pod", "shared")
"""What is submitted, the more often the more often it is named."""
SIZES = (2, 4, 6, 12)
"""GiB of a Pod."""
PRIORITIES = {"test-low": 10, "test-high": 1000}
"""PriorityClasses, which Kueue, Partita and kube-scheduler all know."""
UNDER_WAY = 16
"""Submissions that wait or run at once."""
STUCK_SECONDS = 500
"""A submission that has not ended after this time is stuck. That is longer than all of them take, as
those of a higher priority come first."""


@dataclass(frozen=True)
class Team:
    """Who submits: a namespace and its queue."""

    namespace: str
    queue: str


@dataclass(frozen=True)
class Submission:
    """What one user submits."""

    kind: str
    name: str
    team: Team
    pods: int
    memory: int
    seconds: float
    priority: str
    deleted_after: float | None
    """Seconds after which its user deletes it; None for one who waits for its end."""


def draw(random: Random, number: int, teams: Sequence[Team], kinds: Sequence[str]) -> Submission:
    """Return a random submission of one of some kinds."""
    kind = random.choice(kinds)
    return Submission(
        kind=kind,
        name=f"{kind}-{number}",
        team=random.choice(teams),
        pods=1 if kind in {"pod", "shared"} else random.randint(1, 3),
        memory=random.choice(SIZES),
        seconds=random.choice((0.1, 0.3, 1.0)),
        priority=random.choice(("", *PRIORITIES)),
        deleted_after=random.uniform(0, 3) if random.random() < 0.15 else None,
    )


class Submissions:
    """Carries out submissions, many at a time."""

    def __init__(self, cluster: SchedulingCluster) -> None:
        self._cluster = cluster
        self._room = asyncio.Semaphore(UNDER_WAY)
        self._creating: defaultdict[str, list[asyncio.Task[Any]]] = defaultdict(list)

    async def carry_out(self, submissions: Sequence[Submission]) -> None:
        """Submit all of them, and wait until each has ended."""
        async with asyncio.TaskGroup() as tasks:
            for submission in submissions:
                await self._room.acquire()
                tasks.create_task(self._play(submission))

    async def _play(self, submission: Submission) -> None:
        way = {
            "job": self._job,
            "deployment": self._deployment,
            "group": self._group,
            "pod": self._group,
            "shared": self._shared,
        }[submission.kind]
        work = asyncio.create_task(way(submission))
        done, _ = await asyncio.wait({work}, timeout=submission.deleted_after)
        if done:
            work.result()
        else:
            work.cancel()
            await asyncio.wait({work})
            await asyncio.gather(*self._creating[submission.name])
        await self._delete(submission)
        self._room.release()

    async def _job(self, submission: Submission) -> None:
        """Run a Job whose Pods wait for each other: a part of them would run for ever."""
        creation = self._cluster.create_job(
            submission.name,
            _pod(submission, seconds=FOREVER),
            submission.pods,
            submission.team.namespace,
            labels=_labels(submission),
        )
        await self._created(submission, creation)

        def job() -> Body | None:
            return self._cluster.history.get("jobs", submission.name, submission.team.namespace)

        def all_run() -> list[Body]:
            """Return the running Pods if none is missing: one may end before others are preempted."""
            ended = (job() or {}).get("status", {}).get("succeeded", 0)
            running = [
                pod
                for pod in self._pods(submission)
                if pod["status"]["phase"] == "Running"
                and "deletionTimestamp" not in pod["metadata"]
            ]
            return running if len(running) + ended == submission.pods else []

        while not (end := job_ended(job())):
            await self._until(submission, lambda: all_run() or job_ended(job()))
            await asyncio.sleep(submission.seconds)  # they work
            for pod in all_run():
                await self._cluster.end(pod, "Succeeded")
            await self._until(submission, lambda: not all_run() or job_ended(job()))
        assert end == "Complete", job()

    async def _deployment(self, submission: Submission) -> None:
        """Run a Deployment until all its Pods serve at once."""
        creation = self._cluster.create_deployment(
            submission.name,
            _pod(submission, restart="Always", seconds=FOREVER),
            submission.pods,
            submission.team.namespace,
            labels=_labels(submission),
        )
        await self._created(submission, creation)

        def serving() -> bool:
            body = self._cluster.history.get(
                "deployments", submission.name, submission.team.namespace
            )
            return bool(body) and body.get("status", {}).get("readyReplicas") == submission.pods

        await self._until(submission, serving)

    async def _group(self, submission: Submission) -> None:
        """Run a group of Pods; as their controller, replace each that is ended before its end."""
        async with asyncio.TaskGroup() as tasks:
            for member in range(submission.pods):
                tasks.create_task(self._member(submission, member))

    async def _shared(self, submission: Submission) -> None:
        """Run a SharedGPUJob, which needs no quota of Kueue."""
        creation = self._cluster.job(
            submission.name,
            PARTITION,
            sim={"duration": f"{round(submission.seconds * SPEED)}s"},
            namespace=submission.team.namespace,
            gpuMemory=f"{submission.memory}Gi",
        )
        job = await self._created(submission, creation)
        await self._until(submission, lambda: job.status.get("phase") in {"Succeeded", "Failed"})
        assert job.status["phase"] == "Succeeded", job.status

    async def _member(self, submission: Submission, member: int) -> None:
        labels, annotations = _labels(submission), dict[str, str]()
        if submission.kind == "group":
            group = group_of(submission.name, submission.pods)
            labels |= group["labels"]
            annotations = group["annotations"]
        for attempt in itertools.count():
            pod = self._cluster.create_pod(
                f"{submission.name}-{member}-{attempt}",
                _pod(submission),
                submission.team.namespace,
                labels=labels,
                annotations=annotations,
            )
            uid = await self._created(submission, pod)
            if await self._until(submission, lambda uid=uid: self._ended(uid)) == "Succeeded":
                return

    def _ended(self, uid: str) -> str:
        """Return how a Pod ended, `Succeeded` or `Failed`; empty while it has not."""
        last = self._cluster.history.last("pods", uid)
        if last is None:
            return ""
        phase: str = last.body["status"]["phase"]
        gone = last.kind == "DELETED" or "deletionTimestamp" in last.body["metadata"]
        return phase if phase in {"Succeeded", "Failed"} else "Failed" if gone else ""

    async def _created(self, submission: Submission, creation: Coroutine[Any, Any, T]) -> T:
        """Create an object, even if its user loses patience meanwhile."""
        task = asyncio.create_task(creation)
        self._creating[submission.name].append(task)
        return await asyncio.shield(task)

    async def _until(self, submission: Submission, holds: Callable[[], Any]) -> Any:
        return await self._cluster.history.until(
            holds, seconds=STUCK_SECONDS, what=lambda: (str(submission), self._seen(submission))
        )

    def _seen(self, submission: Submission) -> list[str]:
        """Return what there is of a submission, for the message about one that is stuck."""
        history, namespace = self._cluster.history, submission.team.namespace
        claims = [
            f"claim {claim['metadata']['name']}: {claim['metadata'].get('annotations')}"
            for claim in history.all("resourceclaims", namespace)
            if claim["metadata"]["name"].startswith(f"{submission.name}-")
        ]
        pods = [
            f"Pod {pod['metadata']['name']}: {pod['status'].get('phase')}, gates "
            f"{pod['spec'].get('schedulingGates')}, since {pod['metadata']['creationTimestamp']}, "
            f"deleted {pod['metadata'].get('deletionTimestamp')}"
            for pod in self._pods(submission)
        ]
        workloads = [
            f"Workload {workload['metadata']['name']}: {_conditions(workload)}"
            for workload in history.all("workloads", namespace)
            if submission.name in workload["metadata"]["name"]
        ]
        return [*claims, *workloads, *pods]

    async def _delete(self, submission: Submission) -> None:
        """Delete all that was made, and wait until it is gone."""
        cluster, namespace = self._cluster, submission.team.namespace
        collections = {
            "job": f"/apis/batch/v1/namespaces/{namespace}/jobs",
            "deployment": f"/apis/apps/v1/namespaces/{namespace}/deployments",
            "shared": f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs",
        }
        if path := collections.get(submission.kind):
            options = {"propagationPolicy": "Background"}
            await cluster.api.delete(f"{path}/{submission.name}", options)
        else:
            listed = (await cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")).ok()
            for name in listed.names:
                if name.startswith(f"{submission.name}-"):
                    await cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
            # Kueue lets the Pods of a group go with their Workload: until then it expects others
            # in their place.
            await cluster.api.delete(f"{GROUP}/namespaces/{namespace}/workloads/{submission.name}")
        await self._until(submission, lambda: not self._pods(submission))

    def _pods(self, submission: Submission) -> list[Body]:
        own = f"{submission.name}-"
        pods = self._cluster.history.all("pods", submission.team.namespace)
        return [pod for pod in pods if pod["metadata"]["name"].startswith(own)]


def _pod(submission: Submission, *, seconds: float | None = None, **more: Any) -> Body:
    if submission.priority:
        more["priorityClassName"] = submission.priority
    runs = submission.seconds if seconds is None else seconds
    return workload_pod(submission.memory, runs, **more)


def _labels(submission: Submission) -> dict[str, str]:
    return {QUEUE_LABEL: submission.team.queue}


def _conditions(body: Body) -> dict[str, str]:
    """Return which conditions an object has, and since when."""
    conditions = body.get("status", {}).get("conditions", ())
    return {c["type"]: f"{c['status']} {c['lastTransitionTime']}" for c in conditions}
