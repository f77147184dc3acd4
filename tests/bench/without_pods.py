"""The operator with the writes of job Pods and their claims left out, for `bench.scale --no-pods`.

What is left is what Kueue does for a workload: to admit it, and to see it finish. A Pod that the
operator makes is answered for by this process, and so is what kubelet would tell of it. Pods that
are not made need no ResourceClaims either. Nothing else of the operator is another.

    python -m bench.without_pods run ...
"""

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any, Self

from typing_extensions import override

from bench.nodes import ended, run_seconds, running
from partita.cli import main
from partita.commit import committer as commit
from partita.commit.creation import Created
from partita.commit.job_claims import JobClaims
from partita.commit.job_pods import JobPods
from partita.informer.state import State
from partita.kube.client import PODS, Kind, Kube
from partita.kube.events import Events

Json = dict[str, Any]

_FIRST_VERSION = 1 << 60
"""Of the Pods that the API server knows nothing of: above all of its own, so that none of its
lists makes one be forgotten."""


class _Answering:
    """Stands in for the API where the operator makes a job's Pod, and for its kubelet."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._versions = itertools.count(_FIRST_VERSION)
        self._running: set[asyncio.Task[None]] = set()

    async def create(self, kind: Kind, body: Json, *, once: bool) -> Json:
        """Take a Pod, and let it run its time."""
        assert once
        assert kind == PODS
        await asyncio.sleep(0)
        del body["spec"]["resourceClaims"]
        pod = self._told(body, {})
        task = asyncio.create_task(self._run(pod))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return pod

    async def _run(self, pod: Json) -> None:
        since = datetime.now(UTC)
        await asyncio.sleep(0)  # the operator has the answer first
        self._state.apply_pod(self._told(pod, running(since)))
        await asyncio.sleep(run_seconds(pod))
        self._state.apply_pod(self._told(pod, ended(since, datetime.now(UTC))))

    def _told(self, body: Json, status: Json) -> Json:
        version = next(self._versions)
        meta = {"uid": f"pod-{version}", **body["metadata"], "resourceVersion": str(version)}
        return {**body, "metadata": meta, "status": status}


class _WithoutPods(JobPods):
    @classmethod
    def of(cls, kube: Kube, state: State, events: Events) -> Self:  # noqa: ARG003 - as its parent's
        answering: Any = _Answering(state)
        return cls(answering, state, events, asyncio.Semaphore(32))


class _WithoutClaims(JobClaims):
    @override
    async def create(self, *_: Any) -> Created:
        return Created.DONE


if __name__ == "__main__":
    commit.JobPods = _WithoutPods  # type: ignore[misc]
    commit.JobClaims = _WithoutClaims  # type: ignore[misc]
    main()
