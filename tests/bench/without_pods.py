"""The operator with the writes of job Pods and their claims left out, for `bench.scale --no-pods`.

What is left is what Kueue does for a workload: to admit it, and to see it finish. A claim or a Pod
that the operator makes is kept by this process, which also tells what kubelet would tell of the
Pod. Nothing else of the operator is another.

    python -m bench.without_pods run ...
"""

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any, cast

from bench.nodes import ended, run_seconds, running
from partita.claims.claim_allocations import ClaimAllocations
from partita.cli import main
from partita.jobs.attempt_pods import AttemptPods
from partita.kube.client import PODS, Kind, Kube
from partita.models.quantities import format_time
from partita.pods.own_claims import own_claim_name
from partita.process import cycle_writer
from partita.store.state import State
from partita.times import Times

Json = dict[str, Any]

_FIRST_VERSION = 1 << 60
"""Of the objects that the API server knows nothing of: above all of its own, so that none of its
lists makes one be forgotten."""


class _Objects:
    """Stands in for the API where the operator writes a job's claim and Pod, and for kubelet."""

    _of: dict[tuple[Kind, str, str], Json] = {}  # noqa: RUF012 - of the only operator
    _running: set[asyncio.Task[None]] = set()  # noqa: RUF012
    _versions = itertools.count(_FIRST_VERSION)
    times = Times()

    def __init__(self, state: State) -> None:
        self._state = state

    async def create(self, kind: Kind, body: Json) -> Json:
        """Keep a new object."""
        await asyncio.sleep(0)
        version = next(self._versions)
        new = {"uid": f"made-{version}", "creationTimestamp": format_time(datetime.now(UTC))}
        return self._keep(kind, {**body, "metadata": {**body["metadata"], **new}})

    async def patch(
        self, kind: Kind, name: str, patch: Json, *, namespace: str, **_options: str
    ) -> Json:
        """Allocate a claim, or bind a Pod whose gate is removed and let it run its time."""
        await asyncio.sleep(0)
        body = self._of[kind, namespace, name]
        if kind is not PODS:
            return self._keep(kind, {**body, "status": patch["status"]})
        claim = self._state.claim_named(namespace, own_claim_name(name))
        assert claim is not None
        server = self._state.servers[min(self._state.allocated(claim.uid))]
        spec = {**body["spec"], "nodeName": server.status.node}
        del spec["schedulingGates"]
        bound = self._keep(kind, {**body, "spec": spec})
        task = asyncio.create_task(self._run(bound))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return bound

    async def delete(self, kind: Kind, name: str, namespace: str, **_options: object) -> None:
        """Forget an object, and tell it as a watch does."""
        await asyncio.sleep(0)
        if (body := self._of.pop((kind, namespace, name), None)) is not None:
            apply = self._state.apply_pod if kind is PODS else self._state.apply_claim
            apply(self._newer(body), deleted=True)

    async def _run(self, pod: Json) -> None:
        since = datetime.now(UTC)
        await asyncio.sleep(0)  # the operator has the answer first
        self._state.apply_pod(self._newer({**pod, "status": running(since)}))
        await asyncio.sleep(run_seconds(pod))
        status = ended(since, datetime.now(UTC))
        self._state.apply_pod(self._keep(PODS, {**pod, "status": status}))

    def _keep(self, kind: Kind, body: Json) -> Json:
        new, meta = self._newer(body), body["metadata"]
        self._of[kind, meta["namespace"], meta["name"]] = new
        return new

    def _newer(self, body: Json) -> Json:
        version = str(next(self._versions))
        return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


class _AttemptPods(AttemptPods):
    def __init__(self, _: Kube, state: State, *others: Any) -> None:
        super().__init__(cast("Kube", _Objects(state)), state, *others)


class _ClaimAllocations(ClaimAllocations):
    def __init__(self, _: Kube, state: State, *others: Any, **more: Any) -> None:
        super().__init__(cast("Kube", _Objects(state)), state, *others, **more)


if __name__ == "__main__":
    cycle_writer.AttemptPods = _AttemptPods  # type: ignore[assignment, attr-defined]
    cycle_writer.ClaimAllocations = _ClaimAllocations  # type: ignore[assignment, attr-defined]
    main()
