"""Binds Pods to nodes, as kube-scheduler does: GPU Pods only; others are the cluster's own."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog

from partita.embedded.nodes.api import API, ApiError
from partita.embedded.nodes.pods import SimulatedPod
from partita.embedded.nodes.scheduler import Cluster, Unschedulable
from partita.embedded.nodes.status import pod_unschedulable

__all__ = ["Binder"]

log = structlog.get_logger(__name__)


class Binder:
    """Pods without a node, and what happens to them.

    Parameters
    ----------
    api
        The API server.
    cluster
        Where there is room.
    tasks
        Runs the calls.
    on_bound
        Told of each Pod that was bound, and where.
    """

    def __init__(
        self,
        api: API,
        cluster: Cluster,
        tasks: asyncio.TaskGroup,
        on_bound: Callable[[SimulatedPod, str], None],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._tasks = tasks
        self._on_bound = on_bound
        self._waiting: dict[str, SimulatedPod] = {}
        self._told: dict[str, str] = {}
        self._by_resource: defaultdict[str, dict[str, SimulatedPod]] = defaultdict(dict)
        self._binding: set[str] = set()
        self._freed: set[str] = set()

    def add(self, pod: SimulatedPod) -> None:
        """Take on a Pod that has no node; one that is known already is left alone."""
        if pod.uid not in self._waiting and pod.uid not in self._binding:
            self._place(pod)

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone or has a node."""
        self._told.pop(uid, None)
        pod = self._waiting.pop(uid, None)
        if pod is not None:
            for resource in pod.wants.resources:
                self._by_resource[resource].pop(uid, None)

    def retain(self, uids: Iterable[str]) -> None:
        """Drop all Pods but these."""
        for uid in self._waiting.keys() - set(uids):
            self.forget(uid)

    def retry(self, resources: Iterable[str]) -> None:
        """Try the Pods again that wait for these resources; many calls make one pass."""
        waited_for = [resource for resource in resources if self._by_resource.get(resource)]
        if waited_for and not self._freed:
            asyncio.get_running_loop().call_soon(self._pass)
        self._freed.update(waited_for)

    def retry_all(self) -> None:
        """Try all Pods again: a node has changed."""
        self.retry(list(self._by_resource))

    def close(self) -> None:
        """Place no Pod from now on."""
        self._by_resource.clear()

    def _pass(self) -> None:
        freed, self._freed = self._freed, set()
        for resource in freed:
            for pod in list(self._by_resource[resource].values()):
                if not self._cluster.available(resource):
                    break
                self._place(pod)

    def _place(self, pod: SimulatedPod) -> None:
        try:
            node = self._cluster.place(pod.uid, pod.wants)
        except Unschedulable as reason:
            self._waiting[pod.uid] = pod
            for resource in pod.wants.resources:
                self._by_resource[resource][pod.uid] = pod
            if self._told.get(pod.uid) != str(reason):
                self._told[pod.uid] = str(reason)
                self._tasks.create_task(self._tell(pod, str(reason)))
        else:
            self.forget(pod.uid)
            self._binding.add(pod.uid)
            self._tasks.create_task(self._bind(pod, node))

    async def _bind(self, pod: SimulatedPod, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.create(f"{pod.path}/binding", binding)
        except ApiError as error:
            # Gone, or bound by somebody else; where it is ours after all, the watch tells.
            log.info("not bound", pod=pod.name, namespace=pod.namespace, error=str(error))
            self.retry(self._cluster.release(pod.uid))
        else:
            self._on_bound(pod, node)
        finally:
            self._binding.discard(pod.uid)

    async def _tell(self, pod: SimulatedPod, reason: str) -> None:
        try:
            await self._api.patch(
                f"{pod.path}/status", pod_unschedulable(pod.uid, reason, datetime.now(UTC))
            )
        except ApiError as error:
            log.info("not told", pod=pod.name, namespace=pod.namespace, error=str(error))
