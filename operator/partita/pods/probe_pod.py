"""The probe Pod: shows whether NVIDIA's container toolkit limits the GPU memory of containers.

Only a container shows that: an older toolkit ignores the variables of the limits silently, and a
newer one fails to create the container if the driver cannot limit it. So the operator creates this
Pod on a GPU whose other requirements are met, and then the Pod's claim. The Pod gets its GPU and
its limits by the claim, as the Pod of a job does. Its program only waits. The agent reads the limit
of its container back from the driver, and writes `status.capabilities.limitHook`. Then the operator
deletes the Pod. The claim belongs to the Pod, so Kubernetes deletes it.

The limit of the first job, read back, would say the same. It would cost jobs, though: with a
toolkit whose hook fails, the first container of each GPU is not created; where
`sharing.enforcement` is Driver, the first job would run without the limit that the partition
requires, and then be ended. And how much memory a GPU has for jobs is known only with its kind of
limit, because limits of MPS leave out the memory of contexts.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from partita.constants import COMPONENT_PROBE, LABEL_COMPONENT, LABEL_PARTITION
from partita.models import Allocation, Framework, GPUPartition, GPUServer, Outcome, SharingMode
from partita.models.quantities import MEBI
from partita.models.template import PodTemplate
from partita.pods.allocation import JobAllocation
from partita.pods.environment import ContainerEnvironment, environment
from partita.pods.job_pod import PodSpecBuilder
from partita.pods.outcome import read_outcome
from partita.pods.own_claims import build_own_claim, own_claim_name
from partita.pods.server_pod import ServerPodSettings

__all__ = [
    "PROBE_CONTAINER",
    "RESTRICTED_CONTAINER",
    "RESTRICTED_POD",
    "build_probe_claim",
    "build_probe_pod",
    "probe_claim_name",
    "probe_entry",
    "probe_failure",
    "probe_name",
    "probe_variables",
]

PROBE_CONTAINER: Final = "probe"
RESTRICTED_POD: Final = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""The `securityContext` of a Pod and of a container that meets Pod Security `restricted`."""

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


def probe_claim_name(server: str) -> str:
    """Return the name of the claim of the probe Pod of a GPUServer."""
    return own_claim_name(probe_name(server))


def probe_entry(server: GPUServer, namespace: str, now: datetime) -> Allocation:
    """Return what the probe Pod of a GPUServer gets; its ledger does not contain it."""
    pod = probe_name(server.metadata.name)
    return Allocation(
        namespace=namespace,
        name=probe_claim_name(server.metadata.name),
        pod=pod,
        pod_uid="",
        memory=MEBI,
        since=now,
    )


def probe_variables(uuid: str, memory: int) -> dict[str, str]:
    """Return the variables of the container of a probe Pod.

    Parameters
    ----------
    uuid, memory
        The GPU, and its memory in bytes.
    """
    allocation = JobAllocation(
        uuids=(uuid,),
        memory=MEBI,
        total_memory=memory,
        mode=SharingMode.TIME_SLICING,  # its program is no client of MPS
        driver_limits=True,
    )
    return environment(Framework.NONE, allocation).variables


def build_probe_claim(
    server: GPUServer, pod: str, pod_uid: str, entry: Allocation
) -> dict[str, Any]:
    """Build the claim of a probe Pod.

    Parameters
    ----------
    pod, pod_uid
        Name and UID of the Pod.
    entry
        What it gets.
    """
    return build_own_claim(
        entry.name,
        entry.namespace,
        server.spec.partition,
        memory=entry.memory,
        labels={LABEL_COMPONENT: COMPONENT_PROBE, LABEL_PARTITION: server.spec.partition},
        owner={
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod,
            "uid": pod_uid,
            "controller": True,
            "blockOwnerDeletion": False,
        },
    )


def build_probe_pod(
    server: GPUServer, partition: GPUPartition, settings: ServerPodSettings
) -> dict[str, Any]:
    """Build the probe Pod of a GPUServer whose GPU is known.

    It meets Pod Security `restricted`, as the Pod of a job can.
    """
    name, status = probe_name(server.metadata.name), server.status
    allocation = JobAllocation(
        uuids=(status.uuid,),
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
            "securityContext": RESTRICTED_POD,
            "containers": [
                {
                    "name": PROBE_CONTAINER,
                    "image": settings.image,
                    "command": ["python3", "-c", _WAIT],
                    "securityContext": RESTRICTED_CONTAINER,
                }
            ],
        }
    )
    claim = probe_claim_name(server.metadata.name)
    builder = PodSpecBuilder(allocation, ContainerEnvironment({}), claim)
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
            "ownerReferences": [server.owner_reference()],
        },
        "spec": builder.spec(template),
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
