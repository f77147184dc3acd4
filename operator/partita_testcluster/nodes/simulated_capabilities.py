"""What a simulated GPU supports under MPS, by the version of its driver, in an agent's terms."""

from dataclasses import dataclass
from typing import Any, Final

from partita.models.gpu_server import GPUServerSpec
from partita.models.sharing import Enforcement, Isolation, MPSProtocol

__all__ = ["SimulatedCapabilities", "StatedCondition"]

StatedCondition = tuple[bool, str, str]
"""Whether a condition holds, its reason and its message."""

_LIMITS_FROM: Final = 615
"""First driver with memory limits for cgroups and with MPS protocol 3
(https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html)."""
_STATIC_SM_FROM: Final = 610
"""First driver whose static SM partitions isolate faults
(https://docs.nvidia.com/deploy/mps/latest/appendix-common-tasks.html)."""


@dataclass(frozen=True, slots=True)
class SimulatedCapabilities:
    """What a GPU supports, and what of it is in force.

    Parameters
    ----------
    driver
        Version of the driver, such as `615.71.09`.
    spec
        Spec of its GPUServer.
    probed
        Whether a probe Pod has run on the GPU.
    """

    driver: str
    spec: GPUServerSpec
    probed: bool

    @property
    def _branch(self) -> int:
        return int(self.driver.partition(".")[0])

    @property
    def _has_limits(self) -> bool:
        return self._branch >= _LIMITS_FROM

    @property
    def _limit_hook(self) -> str | None:
        if not self._has_limits or self.spec.enforcement is Enforcement.CLIENT:
            return None
        return "Applied" if self.probed else "Unknown"

    @property
    def _enforcement(self) -> str | None:
        if self._limit_hook is not None:
            return "Driver" if self.probed else None
        return None if self.spec.enforcement is Enforcement.DRIVER else "Client"

    def status(self) -> dict[str, Any]:
        """Return the part of the GPUServer's status that they determine, as a merge patch."""
        static = self.spec.isolation is Isolation.STATIC_SM and self._branch >= _STATIC_SM_FROM
        return {
            "capabilities": {
                "memoryBackend": "misc" if self._has_limits else "none",
                "limitHook": self._limit_hook,
            },
            "enforcement": self._enforcement,
            # `Auto` is 2: programs that run as root need user namespaces, which the nodes lack.
            "protocol": 3 if self._has_limits and self.spec.protocol is MPSProtocol.V3 else 2,
            "smPartitions": self.spec.max_jobs if static else None,
        }

    def conditions(self) -> dict[str, StatedCondition]:
        """Return the conditions of the GPUServer that they determine, by type."""
        limits = self._limits()
        protocol = self._needs(_LIMITS_FROM, "MPS protocol 3")
        partitions = self._needs(_STATIC_SM_FROM, "static SM partitions")
        required = [
            (limits, self.spec.enforcement is Enforcement.DRIVER or self._limit_hook == "Unknown"),
            (protocol, self.spec.protocol is MPSProtocol.V3),
            (partitions, self.spec.isolation is Isolation.STATIC_SM),
        ]
        missing = [stated for stated, needed in required if needed and not stated[0]]
        return {
            "Ready": missing[0] if missing else (True, "AgentReporting", ""),
            "DriverLimits": limits,
            "MPSProtocol3": protocol,
            "StaticSMPartitions": partitions,
        }

    def _needs(self, branch: int, what: str) -> StatedCondition:
        if self._branch >= branch:
            return True, "Supported", f"driver {self.driver} has {what}"
        remedy = f"install driver {branch} or later"
        return False, "NotSupported", f"driver {self.driver} does not have {what}: {remedy}"

    def _limits(self) -> StatedCondition:
        if self.spec.enforcement is Enforcement.CLIENT:
            return False, "NotRequested", "sharing.enforcement of the partition is Client"
        if not self._has_limits:
            _, _, message = self._needs(_LIMITS_FROM, "memory limits for containers")
            return False, "NoDriverSupport", message
        if not self.probed:
            return False, "LimitsNotProven", "no probe Pod has shown yet that limits are applied"
        return True, "Proven", ""
