"""Makes kubelet try again soon to prepare the claims of a Pod.

If kubelet could not prepare the claims of a Pod, it tries again only after its `syncFrequency`,
1 min to 1.5 min (`completeWork` in pkg/kubelet/pod_workers.go, k8s.io/kubernetes v1.36.3). It tries
at once if the Pod changes, for example an annotation (`podsDifferSemantically` in
pkg/kubelet/config/config.go). So the operator changes an annotation of a Pod that has been on its
node for some seconds without a sandbox. The preparation fails, for example, while the agent starts
again, and while the API server does not know yet that kubelet may read the claim.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NoReturn

import structlog

from partita.constants import ANNOTATION_PREPARE
from partita.kube.client import PODS, Kube
from partita.kube.errors import KubernetesError
from partita.kube.namespace_slots import NamespaceSlots
from partita.models.quantities import format_time
from partita.pause import Pause
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["PreparationRetries"]

_RETRY_AFTER: Final = timedelta(seconds=5)
"""Time until the first retry. Each following one comes after twice the time, because some Pods wait
for something else, such as a Secret. An assumption: several times as long as a preparation usually
takes."""
_EVERY: Final = 1.0
"""Seconds between two checks."""


@dataclass
class PreparationRetries:
    """Retries the preparation of Pods with allocated claims, until cancelled."""

    kube: Kube
    state: State

    def __post_init__(self) -> None:
        self._pauses: dict[str, Pause] = {}
        """Until the next retry, by UID of each Pod that is being prepared."""
        self._slots = NamespaceSlots(most=16, of_a_namespace=4)
        self._log = structlog.get_logger().bind(part="pods")

    async def run(self) -> NoReturn:
        """Retry until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(_EVERY)
                group.create_task(self.retry())

    async def retry(self) -> None:
        """Retry the Pods that are due, so that none waits for the answer about another."""
        pods, now, due = self._preparing(), self.state.now(), list[PodView]()
        first = Pause(now, now + _RETRY_AFTER)
        self._pauses = {uid: self._pauses.get(uid, first) for uid in pods}
        for uid, pause in sorted(self._pauses.items()):
            if not pause.holds(now):
                self._pauses[uid] = Pause.of(now, 2 * (pause.until - pause.since).total_seconds())
                due.append(pods[uid])
        await asyncio.gather(*map(self._retry, due))

    def _preparing(self) -> dict[str, PodView]:
        """Return the Pods that are being prepared and whose GPU takes Pods, by UID."""
        return {
            pod.uid: pod
            for pod in self.state.pods.values()
            if pod.startup is not None
            and pod.startup.preparing
            and not pod.deleting
            and self._is_served(pod)
        }

    def _is_served(self, pod: PodView) -> bool:
        """Return whether a Pod has a slice of a ready GPU, or runs before its GPU is ready."""
        state = self.state
        if pod.owner_kind == "GPUServer":
            return True  # a server Pod, whose claim may be NVIDIA's, or a probe Pod
        claims = state.allocated_for(pod.uid)
        servers = {name for claim in claims for name in state.allocated(claim)}
        return bool(servers) and all(state.servers[name].status.holds("Ready") for name in servers)

    async def _retry(self, pod: PodView) -> None:
        notes = {ANNOTATION_PREPARE: format_time(self.state.now())}
        patch = {"metadata": {"uid": pod.uid, "annotations": notes}}
        try:
            async with self._slots.of(pod.namespace):
                body = await self.kube.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except KubernetesError as error:
            self._log.info("preparation not retried", pod=pod.key, error=str(error))
            return
        self._log.info("preparation retried", pod=pod.key)
        self.state.apply_pod(body)
