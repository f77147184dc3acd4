"""Reads from a probe Pod whether the container toolkit sets the driver's memory limits.

The operator creates the Pod while `status.capabilities.limitHook` is `Unknown`
(`partita.pods.probe_pod`). Its container is created as those of jobs are. The limit that the driver
then has for the container's cgroup shows what the toolkit did. Nothing is inferred from versions.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from partita.agent.allocations import READ_WITHIN
from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice
from partita.agent.gpu.nvml_memory_limits import memory_limits
from partita.agent.gpu.nvml_threads import in_thread
from partita.agent.limits.cgroups import CgroupTree
from partita.agent.limits.decision import RETRY_AFTER, Hook, ProbeResult
from partita.agent.limits.job_limits import limits_of, started_containers
from partita.kube.client import PODS, Kube
from partita.kube.errors import NotFoundError
from partita.models import GPUServer
from partita.models.sharing import Enforcement
from partita.pods.probe_pod import PROBE_CONTAINER, probe_failure, probe_name, probe_variables

__all__ = ["LimitProbe"]

DEADLINE: Final = 300.0
"""Seconds within which a probe Pod must show something: longer than two of them take. A Pod that
cannot be scheduled, as on a cordoned node, or is not created while the GPU is out of service, is
waited for: no job's Pod could start either."""
_UNKNOWN: Final = ProbeResult("Unknown")


@dataclass(slots=True)
class LimitProbe:
    """What probe Pods have shown about one GPU's node.

    Parameters
    ----------
    identity
        The GPU.
    namespace
        Namespace of the probe Pod, which is that of the server Pod.
    tree
        The node's cgroups.
    """

    kube: Kube
    identity: GPUIdentity
    namespace: str
    tree: CgroupTree
    result: ProbeResult = field(default=_UNKNOWN, init=False)
    """What was shown last."""
    hook: Hook = field(default="Unknown", init=False)
    """What the status says of it; the operator creates a probe Pod while that is `Unknown`."""
    _retry_at: float = inf
    _since: float | None = None
    """Since when a probe Pod could show something."""

    def show(self, result: ProbeResult, now: float) -> None:
        """Set what was shown; `Unknown` requests a probe Pod.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.
        """
        self.result, self.hook, self._since = result, result.hook, None
        self._retry_at = inf if result.hook in {"Applied", "Unknown"} else now + RETRY_AFTER

    async def check(self, gpu: NVMLDevice, server: GPUServer, now: float, *, waiting: bool) -> None:
        """Read the probe Pod if nothing is shown yet, or limits that did not work are tried again.

        Where they are not required, MPS limits the jobs meanwhile. What limits a job may not change
        while it runs. So they are tried only while the GPU has no job.

        Parameters
        ----------
        server
            The GPUServer, which owns the Pod.
        now
            Seconds of a monotonic clock.
        waiting
            Whether the GPU is ready for the Pod: the deadline counts from then on.

        Raises
        ------
        KubernetesError, TimeoutError
            The Pod cannot be read.
        NVMLError
            The driver does not answer.
        """
        required = server.spec.enforcement is Enforcement.DRIVER
        if self.result.hook != "Unknown":
            if server.status.allocations and not required:
                if self.hook == "Unknown":  # a job has come meanwhile
                    self.show(self.result, now)
                return
            if now < self._retry_at:
                return
            self.hook = "Unknown"
        pod = await self._pod(server)
        is_pending = pod is not None and not pod["spec"].get("nodeName")
        if not waiting or is_pending or server.out_of_service_since is not None:
            self._since = None
        elif self._since is None:
            self._since = now
        shown = await self._shown(gpu, pod) if pod is not None else None
        if shown is None and self._since is not None and now - self._since >= DEADLINE:
            name = probe_name(server.metadata.name)
            detail = f"no container of a probe Pod was seen within {DEADLINE:g} s (Pod {name})"
            shown = ProbeResult("Failed", detail)
        if shown is not None:
            self.show(shown, now)

    async def _pod(self, server: GPUServer) -> Mapping[str, Any] | None:
        """Return the current probe Pod; None if there is none: another Pod may have its name."""
        try:
            async with asyncio.timeout(READ_WITHIN):
                pod = await self.kube.get(PODS, probe_name(server.metadata.name), self.namespace)
        except NotFoundError:
            return None
        owners = pod["metadata"].get("ownerReferences") or ()
        is_owned = any(o["uid"] == server.metadata.uid for o in owners if o.get("controller"))
        return pod if is_owned else None

    async def _shown(self, gpu: NVMLDevice, pod: Mapping[str, Any]) -> ProbeResult | None:
        """Return what a probe Pod shows; None if nothing yet."""
        if failure := probe_failure(pod):
            return ProbeResult(
                "Failed", f"the container of a probe Pod was not created ({failure})"
            )
        # The GPUServer may not say yet which GPU this is.
        uuid, memory = self.identity.uuid, self.identity.memory
        expected = limits_of(probe_variables(uuid, memory))
        container = started_containers(pod).get(PROBE_CONTAINER)
        cgroup = self.tree.container(pod["metadata"]["uid"], container) if container else None
        if cgroup is None or expected is None:
            return None
        found = await in_thread(memory_limits, gpu, cgroup)
        if found == expected:
            return ProbeResult("Applied")
        if found is None or not found.limited:
            return ProbeResult("NotApplied")
        detail = f"the container of a probe Pod had a limit of {found} instead of {expected}"
        return ProbeResult("NotApplied", detail)
