"""The operator with the writes of job Pods and their claims left out, for `bench.scale --no-pods`.

What is left is what Kueue does for a workload: to admit it, and to see it finish. A Pod that the
operator makes is answered for by this process, and so is what kubelet would tell of it. Pods that
are not made need no ResourceClaims either. Nothing else of the operator is another.

    python -m bench.without_pods run ...
"""

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

from bench.nodes import ended, run_seconds, running
from partita.cli import main
from partita.jobs.attempt_pods import AttemptPods
from partita.models import Allocation, SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.pods.job_pod import build_job_pod
from partita.process import cycle_writer as commit
from partita.store.views import PodView

Json = dict[str, Any]

_FIRST_VERSION = 1 << 60
"""Of the Pods that the API server knows nothing of: above all of its own, so that none of its
lists makes one be forgotten."""


class _WithoutPods(AttemptPods):
    """Stands in for the API where the operator makes a job's Pod, and for its kubelet."""

    _made: dict[str, Json] = {}  # noqa: RUF012 - of the only instance
    _running: set[asyncio.Task[None]] = set()  # noqa: RUF012
    _versions = itertools.count(_FIRST_VERSION)

    @override
    async def create(self, job: SharedGPUJob, wanted: JobAllocation, entry: Allocation) -> PodView:
        """Take a Pod."""
        await asyncio.sleep(0)
        manifest = build_job_pod(job, wanted).manifest
        del manifest["spec"]["resourceClaims"]
        manifest["metadata"]["uid"] = uid = f"pod-{next(self._versions)}"
        self._made[uid] = manifest
        return self._tell(manifest, {})

    @override
    async def start(
        self, job: SharedGPUJob, pod: PodView, wanted: JobAllocation, *allocated: object
    ) -> None:
        """Bind a Pod to a node, and let it run its time."""
        await asyncio.sleep(0)
        manifest = self._made.pop(pod.uid)
        del manifest["spec"]["schedulingGates"]
        manifest["spec"]["nodeName"] = wanted.node
        self._tell(manifest, {})
        task = asyncio.create_task(self._run(manifest))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, pod: Json) -> None:
        since = datetime.now(UTC)
        await asyncio.sleep(0)  # the operator has the answer first
        self._tell(pod, running(since))
        await asyncio.sleep(run_seconds(pod))
        self._tell(pod, ended(since, datetime.now(UTC)))

    def _tell(self, pod: Json, status: Json) -> PodView:
        meta = {**pod["metadata"], "resourceVersion": str(next(self._versions))}
        body = {**pod, "metadata": meta, "status": status}
        self.state.apply_pod(body)
        view = PodView.parse(body)
        assert view is not None
        return view


if __name__ == "__main__":
    commit.AttemptPods = _WithoutPods  # type: ignore[attr-defined]
    main()
