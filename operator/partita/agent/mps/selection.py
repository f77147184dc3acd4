"""Which protocol MPS gets, and the conditions that follow from what the MPS container reports."""

from dataclasses import dataclass
from typing import Any, Final

from partita.agent.errors import SetupError
from partita.agent.gpu.nvml import GPUIdentity
from partita.agent.health import HealthProblem, condition
from partita.agent.mps.exchange import MPSReport
from partita.agent.mps.sm_partitions import REASON
from partita.models import Condition
from partita.models.gpu_server import GPUServerSpec
from partita.models.sharing import Isolation, MPSProtocol

__all__ = ["MPSSelection", "check_static_sm"]

_PROTOCOL_3: Final = "MPSProtocol3"
_STATIC_SM: Final = "StaticSMPartitions"
_MULTI_USER: Final = "MPSMultiUser"
_OLDEST_DRIVER: Final = 610
"""Since r610 clients of different partitions are isolated from each other's SM faults. Older
drivers have partitions without this isolation
(https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "Using Static SM Partitioning")."""
_OLDEST_CAPABILITY: Final = (8, 0)
"""Ampere (same page)."""
_NOT_SUPPORTED: Final = (
    "the MPS control daemon does not speak protocol 3 (it refuses the option -p): install driver "
    "r615 or later"
)


def check_static_sm(identity: GPUIdentity) -> None:
    """Check that GPU and driver isolate the SM faults of static partitions.

    Raises
    ------
    SetupError
        They do not; the message contains what to change.
    """
    remedy = "or set sharing.isolation to None"
    if identity.driver_major < _OLDEST_DRIVER:
        raise SetupError(
            REASON,
            f"driver {identity.driver} does not isolate faults of static SM partitions: install "
            f"{_OLDEST_DRIVER} or later, {remedy}",
        )
    if identity.capability is None or identity.capability < _OLDEST_CAPABILITY:
        raise SetupError(
            REASON,
            f"{identity.product} has no static SM partitions, which need Ampere or later: use "
            f"such GPUs (gpuSelector), {remedy}",
        )


@dataclass(frozen=True, slots=True)
class MPSSelection:
    """What a partition asks of MPS on one GPU.

    Parameters
    ----------
    spec
        The spec of the GPUServer. These fields never change while its server Pod exists.
    user_namespaces
        Whether the node can run Pods in user namespaces. With protocol 3 a Pod that may run as root
        needs one.
    """

    spec: GPUServerSpec
    user_namespaces: bool

    @property
    def newest_protocol(self) -> int:
        """The newest protocol that may be used: `Auto` never excludes a job from the GPU."""
        match self.spec.protocol:
            case MPSProtocol.V2:
                return 2
            case MPSProtocol.V3:
                return 3
            case MPSProtocol.AUTO:
                return 3 if self.user_namespaces else 2

    @property
    def static_sm(self) -> bool:
        """Whether the SMs are partitioned."""
        return self.spec.isolation is Isolation.STATIC_SM

    def problem(self, report: MPSReport | None) -> HealthProblem | None:
        """Return why the GPU accepts no jobs: what the partition requires does not work."""
        if report is None:
            return None
        if report.no_sm_partitions:
            return HealthProblem(REASON, report.no_sm_partitions)
        if self.spec.protocol is MPSProtocol.V3 and report.protocol != 3:
            return HealthProblem(
                "MPSProtocol3NotSupported",
                f"{_NOT_SUPPORTED}, or set sharing.protocol to Auto",
            )
        return None

    def status(self, report: MPSReport | None) -> dict[str, Any]:
        """Return the fields of the GPUServer's status."""
        if report is None or not report.daemon:
            return {}
        partitions = len(report.sm_partitions)
        return {"protocol": report.protocol} | ({"smPartitions": partitions} if partitions else {})

    def conditions(self, report: MPSReport | None, identity: GPUIdentity) -> tuple[Condition, ...]:
        """Return the conditions on protocol 3 and static SM partitions, and on what is lost."""
        always = (self._protocol_3(report), self._static_sm(report, identity))
        return (*always, _ONE_USER) if report is not None and report.single_user else always

    def _protocol_3(self, report: MPSReport | None) -> Condition:
        if report is None:
            return condition(_PROTOCOL_3, "Unknown", "MPSStarting")
        if report.protocol == 3:
            return condition(_PROTOCOL_3, "True", "InUse")
        if report.no_protocol_3:
            return condition(_PROTOCOL_3, "False", "NotSupported", _NOT_SUPPORTED)
        if self.spec.protocol is MPSProtocol.V2:
            said = "sharing.protocol of the partition is 2"
            return condition(_PROTOCOL_3, "False", "NotRequested", said)
        return condition(
            _PROTOCOL_3,
            "False",
            "NoUserNamespaces",
            "the node's container runtime reports no user namespaces, in which jobs that run as "
            "root would be isolated from MPS: use driver r615, Kubernetes 1.33 and containerd 2.0 "
            "or later; or set sharing.protocol to 3, and such jobs are refused",
        )

    def _static_sm(self, report: MPSReport | None, identity: GPUIdentity) -> Condition:
        try:
            check_static_sm(identity)
        except SetupError as error:
            return condition(_STATIC_SM, "False", "NotSupported", str(error))
        if not self.static_sm:
            said = "set sharing.isolation to StaticSM to use static SM partitions"
            return condition(_STATIC_SM, "True", "Supported", said)
        if report is None:
            return condition(_STATIC_SM, "Unknown", "MPSStarting")
        if report.no_sm_partitions:
            return condition(_STATIC_SM, "False", "NotSupported", report.no_sm_partitions)
        return condition(_STATIC_SM, "True", "InUse")


_ONE_USER: Final = condition(
    _MULTI_USER,
    "False",
    "NotSupported",
    "the MPS control daemon of this driver serves the programs of one user at a time: others wait, "
    "or fail with CUDA_ERROR_MPS_SERVER_NOT_READY, until these have exited. Run all jobs of this "
    "GPU as one user (securityContext.runAsUser), or install driver r555 or later",
)
"""They wait by https://docs.nvidia.com/deploy/mps/latest/architecture.html, "Server", and
https://github.com/NVIDIA/k8s-device-plugin/issues/679, and fail by
https://docs.nvidia.com/deploy/mps/latest/troubleshooting.html, "User ID Mismatch"."""
