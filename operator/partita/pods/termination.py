"""Gives MPS time to terminate a Pod's clients before Kubernetes signals its programs.

A program that is killed while it uses the GPU can stop all co-located programs:
https://docs.nvidia.com/deploy/mps/latest/when-to-use-mps.html, "Limitations". So under MPS the
agent terminates the clients of a Pod that is being ended (`partita.agent.mps.client_termination`):

1. Kubelet runs the `preStop` hooks before SIGTERM. Each container gets a sleep, in which the agent
   terminates the clients that SIGTERM would kill.
2. A program that handles SIGTERM then has its whole grace period.
3. The clients that are left are terminated shortly before kubelet sends SIGKILL.

The grace period of a Pod includes its hooks
(https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/), so it is longer by
steps 1 and 3. The sleep action is enabled by default since Kubernetes 1.30
(https://www.kubernetes.dev/resources/keps/3960/), the oldest version that Partita supports.
"""

from typing import Any, Final

from partita.models import SharingMode
from partita.models.partition import GPUPartitionSpec

__all__ = [
    "ADDED_GRACE",
    "NO_GRACE",
    "PRE_STOP_SLEEP",
    "TERMINATE_BEFORE_KILL",
    "add_pre_stop",
    "extend_grace",
    "preemption_grace",
]

PRE_STOP_SLEEP: Final = 5
"""Seconds between the deletion of a Pod and SIGTERM. An assumption: the operator and the agent
learn of the deletion within one second, and MPS terminates a client within a few seconds."""
TERMINATE_BEFORE_KILL: Final = 2
"""Seconds before SIGKILL at which the agent terminates the clients that are left. An assumption."""
ADDED_GRACE: Final = PRE_STOP_SLEEP + TERMINATE_BEFORE_KILL
"""Seconds by which a Pod's grace period is longer than its programs'."""
NO_GRACE: Final = (
    "terminationGracePeriodSeconds is 0: the Pod would be gone, and its GPU memory given to "
    "others, before kubelet has ended its programs. Write 1 or more"
)
"""Why a Pod of a user gets no GPU. The API server removes a Pod without a grace period at once
(k8s.io/kubernetes, pkg/registry/core/pod/strategy.go, CheckGracefulDelete)."""
_DEFAULT_GRACE: Final = 30
"""The API server's default of terminationGracePeriodSeconds."""


def add_pre_stop(container: dict[str, Any]) -> str:
    """Add the sleep before SIGTERM to a container; return a notice for the user, or empty.

    A longer sleep and another hook of the user are kept. Kubernetes allows no hooks in init
    containers that are not sidecars
    (https://kubernetes.io/docs/concepts/workloads/pods/init-containers/).
    """
    lifecycle = container.get("lifecycle") or {}
    if not isinstance(lifecycle, dict):
        return ""  # the API server rejects it
    hook = lifecycle.get("preStop") or {}
    own = hook.get("sleep") if isinstance(hook, dict) else None
    if hook and own is None:
        return (
            f"container {container['name']} has its own preStop hook, which is kept: let it take "
            f"at least {PRE_STOP_SLEEP} s, in which MPS terminates the container's GPU work"
        )
    seconds = own.get("seconds") if isinstance(own, dict) else None
    if not isinstance(seconds, int) or seconds < PRE_STOP_SLEEP:
        sleep = {"sleep": {"seconds": PRE_STOP_SLEEP}}
        container["lifecycle"] = {**lifecycle, "preStop": sleep}
    return ""


def extend_grace(spec: dict[str, Any]) -> None:
    """Extend the grace period of a Pod, so that its programs keep their own."""
    own = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    if isinstance(own, int):  # the API server rejects any other type
        spec["terminationGracePeriodSeconds"] = own + ADDED_GRACE


def preemption_grace(partition: GPUPartitionSpec) -> float:
    """Return the maximum grace period, in seconds, of the Pod of a preempted job."""
    added = ADDED_GRACE if partition.sharing.mode is SharingMode.MPS else 0
    return partition.preemption_grace_period + added
