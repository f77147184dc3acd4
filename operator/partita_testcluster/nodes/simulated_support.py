"""What a simulated GPU supports under MPS, by its driver: decided as the agent of a node does."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from partita.agent.errors import SetupError
from partita.agent.gpu.nvml import GPUIdentity
from partita.agent.limits.decision import LimitDecision, LimitSupport, ProbeResult, decide
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.selection import MPSSelection, check_static_sm
from partita.models import Condition
from partita.models.gpu_server import GPUServerSpec
from partita.models.sharing import Enforcement

__all__ = ["SimulatedSupport"]

_LIMITS_FROM: Final = 615
"""First driver with memory limits for cgroups and with MPS protocol 3
(https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html)."""


@dataclass(frozen=True, slots=True)
class SimulatedSupport:
    """What a GPU supports of what its partition asks for.

    Parameters
    ----------
    spec
        Spec of its GPUServer.
    probed
        Whether a probe Pod has run on the GPU.
    """

    identity: GPUIdentity
    spec: GPUServerSpec
    probed: bool

    @property
    def selection(self) -> MPSSelection:
        """What the partition asks of MPS: the nodes have no user namespaces."""
        return MPSSelection(self.spec, user_namespaces=False)

    @property
    def mps(self) -> MPSReport:
        """The control daemon."""
        new, partitions, refused = self._has_limits, range(0), ""
        if self.selection.static_sm:
            try:
                check_static_sm(self.identity)
                partitions = range(self.spec.max_jobs)
            except SetupError as error:
                refused = str(error)
        return MPSReport(
            daemon=1,
            protocol=self.selection.newest_protocol if new else 2,
            no_protocol_3=not new,
            sm_partitions=tuple(f"partition-{i}" for i in partitions),
            no_sm_partitions=refused,
        )

    @property
    def limits(self) -> LimitDecision:
        """What limits the GPU memory of jobs."""
        driver = LimitSupport(self.identity.driver, self._has_limits, cgroups=2, dmem=False)
        return decide(self.spec.enforcement, driver, ProbeResult(self._hook))

    @property
    def _has_limits(self) -> bool:
        return self.identity.driver_major >= _LIMITS_FROM

    @property
    def _hook(self) -> Literal["Applied", "Unknown"]:
        return "Applied" if self.probed else "Unknown"

    def facts(self) -> dict[str, Any]:
        """Return the fields of the GPUServer's status that they determine."""
        asks = self._has_limits and self.spec.enforcement is not Enforcement.CLIENT
        backend = "misc" if self._has_limits else "none"
        hook = {"limitHook": self._hook} if asks else {}
        return {
            "capabilities": {"memoryBackend": backend} | hook,
            "enforcement": self.limits.enforcement,
            **self.selection.status(self.mps),
        }

    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions of the GPUServer that they determine."""
        return (*self.selection.conditions(self.mps, self.identity), self.limits.condition)
