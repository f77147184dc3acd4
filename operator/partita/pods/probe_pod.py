"""The probe Pod: shows whether NVIDIA's container toolkit limits the GPU memory of containers.

Only a container shows that: an older toolkit ignores the variables of the limits silently, and a
newer one fails to create the container if the driver cannot limit it. So the operator creates this
Pod on a GPU whose other requirements are met. It gets its GPU and its limits as the Pod of a job
does. Its program only waits. The agent reads the limit of its container back from the driver, and
writes `status.capabilities.limitHook`. Then the operator deletes the Pod.
"""

from collections.abc import Mapping
from typing import Any, Final

from partita.constants import COMPONENT_PROBE, LABEL_COMPONENT, LABEL_PARTITION
from partita.models import Framework, GPUPartition, GPUServer, Outcome
from partita.models.quantities import MEBI
from partita.models.template import PodTemplate
from partita.pods.allocation import JobAllocation
from partita.pods.environment import environment
from partita.pods.job_pod import PodSpecBuilder
from partita.pods.outcome import read_outcome
from partita.pods.server_pod import ServerPodSettings

__all__ = ["build_probe_pod", "probe_failure", "probe_name"]

_DEADLINE: Final = 120
"""Seconds that the Pod may take, after which kubelet ends it. An assumption: its image is already
on the node, and the agent reads the limit within seconds."""
_WAIT: Final = "import signal; signal.signal(signal.SIGTERM, lambda *_: None); signal.pause()"
"""Ends at SIGTERM, which the first process of a container ignores unless it handles the signal."""
_NOT_CREATED: Final = frozenset({"CreateContainerError", "RunContainerError"})
"""Reasons of a container that the runtime could not create or start
(pkg/kubelet/kuberuntime/kuberuntime_container.go). A Pod whose container was created but could not
be started has failed with containerd's reason `StartError`
(internal/cri/server/container_start.go)."""


def probe_name(server: str) -> str:
    """Return the name of the probe Pod of a GPUServer."""
    return f"{server}-probe"


def build_probe_pod(
    server: GPUServer, partition: GPUPartition, settings: ServerPodSettings
) -> dict[str, Any]:
    """Build the probe Pod of a GPUServer whose GPU is known.

    It meets Pod Security `restricted`, as the Pod of a job can.
    """
    name, status = probe_name(server.metadata.name), server.status
    allocation = JobAllocation(
        attempt=1,
        servers=(server.metadata.name,),
        uuids=(status.uuid,),
        node=status.node,
        memory=MEBI,
        total_memory=status.memory,
        mode=server.spec.mode,
        driver_limits=True,
        device_injection=partition.spec.device_injection,
        tolerations=partition.spec.tolerations,
    )
    template = PodTemplate(
        spec={
            "serviceAccountName": settings.service_account,  # for its image pull secrets
            "automountServiceAccountToken": False,
            "activeDeadlineSeconds": _DEADLINE,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "probe",
                    "image": settings.image,
                    "command": ["python3", "-c", _WAIT],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        }
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            # Not the label of its GPUServer: it selects the Pods of the disruption budget.
            "labels": {
                LABEL_COMPONENT: COMPONENT_PROBE,
                LABEL_PARTITION: server.spec.partition,
            },
            "ownerReferences": [
                {
                    "apiVersion": server.api_version(),
                    "kind": "GPUServer",
                    "name": server.metadata.name,
                    "uid": server.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": PodSpecBuilder(allocation, environment(Framework.NONE, allocation)).spec(template),
    }


def probe_failure(pod: Mapping[str, Any]) -> str:
    """Return why a probe Pod has failed, for example in the hook that sets the limits.

    Empty if it has not, or if Kubernetes ended it: it was evicted, its node was lost, or its
    deadline was over. Then it has shown nothing, and the operator creates another.

    Parameters
    ----------
    pod
        The Pod as the API server returns it.
    """
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _NOT_CREATED:
            return ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
    seen = read_outcome(status)
    return seen.message if seen.outcome is Outcome.FAILED else ""
