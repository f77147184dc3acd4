"""The Pod that holds one GPU for a partition.

Its container `agent` requests the one `nvidia.com/gpu`, in every mode: of the two it is the one
that must know which GPU the Pod got. NVIDIA's device plugin answers that container alone, and the
agent reads the UUID from its environment, or from the kubelet's PodResources API
(https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/,
"Monitoring device plugin resources"), which holds for each of the plugin's strategies.

Its container `mps` must see the GPU without requesting it. It asks NVIDIA's runtime for all GPUs
of the node by `NVIDIA_VISIBLE_DEVICES=all`, as the MPS daemon of NVIDIA's own plugin does
(https://github.com/NVIDIA/k8s-device-plugin, deployments/helm/nvidia-device-plugin/templates/
daemonset-mps-control-daemon.yml), waits for the UUID that the agent leaves under `/run/partita`,
and narrows itself to it by `CUDA_VISIBLE_DEVICES=<uuid>`. So where the partition's deviceInjection
is not RuntimeClass, NVIDIA's runtime has to be the node's default one.
"""

from dataclasses import dataclass
from typing import Any, Final

from partita.constants import (
    COMPONENT_SERVER,
    GPU_RESOURCE,
    LABEL_COMPONENT,
    LABEL_PARTITION,
    LABEL_SERVER,
)
from partita.models import GPUPartition, GPUServer, SharingMode
from partita.models.partition import GPUSelector
from partita.models.quantities import MEBI
from partita.pods.gpu_operator import CLIENTS_MAY_RUN, LABEL_PRODUCT
from partita.pods.job_pod import RUNTIME_CLASS
from partita.pods.mps_directories import RUN_DIRECTORY

__all__ = ["ServerPodSettings", "build_server_pod"]

_DEVICE_PLUGINS: Final = "/var/lib/kubelet/device-plugins"
"""Where kubelet and device plugins meet, `DevicePluginPath` in k8s.io/kubelet."""
_POD_RESOURCES: Final = "/var/lib/kubelet/pod-resources"
"""Directory of the socket on which kubelet reports the devices of Pods."""

_LABEL_MEMORY: Final = "nvidia.com/gpu.memory"
"""Memory in MiB: a label of GPU feature discovery, as `LABEL_PRODUCT`."""
_LABEL_HOST: Final = "kubernetes.io/hostname"

_AGENT_MEMORY: Final = "96Mi"
"""Above the 75.1 MB that it was measured to have (docs/performance.md, "The agent"). A container
above its request is among the first that kubelet ends when a node runs out of memory."""
_MPS_MEMORY: Final = "128Mi"
"""38.2 MB of the program that keeps the daemon running (measured, the same page), about 50 MiB of
the MPS server (NVIDIA's MPS documentation, release 615: host memory for each GPU's context), and,
as an assumption, some for the control daemon."""

_TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{problem}", "operator": "Exists", "effect": "NoExecute"}
    for problem in ("not-ready", "unreachable")
)
"""Of what a DaemonSet's Pods tolerate
(https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/, "Taints and tolerations"),
what keeps a running Pod. A node that does not answer for more than five minutes may still run jobs;
to delete the Pod would end their MPS server as soon as the node answers again. The others are about
where a new Pod may start, and are left out: on a cordoned node (`unschedulable`) it would take back
the GPU that a drain has just freed, and on a node under memory, disk or PID pressure no job could
start (under the latter two kubelet would not admit the Pod itself)."""

_PACKING_WEIGHT: Final = 100
"""The largest that Kubernetes allows."""
_DRIVER_CAPABILITIES: Final = "compute,utility"
"""CUDA and MPS, and NVML: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/
latest/docker-specialized.html, "Driver Capabilities"."""


# To set the GPU's compute mode one must be the node's administrator: "Requires root permissions",
# nvmlDeviceSetComputeMode in https://docs.nvidia.com/deploy/nvml-api/. With SYS_ADMIN,
# allowPrivilegeEscalation cannot be false. Where jobs take turns nothing but a signal ends a
# program above its allocation, and it runs as another user.
_AGENT_CAPABILITIES: Final = {
    SharingMode.MPS: ("SYS_ADMIN",),
    SharingMode.TIME_SLICING: ("KILL", "SYS_ADMIN"),
    SharingMode.EXCLUSIVE: ("SYS_ADMIN",),
}


@dataclass(frozen=True, slots=True)
class ServerPodSettings:
    """What the operator's own installation decides."""

    namespace: str
    """The server Pods' namespace."""
    image: str
    """Partita's image; both containers run from it."""
    service_account: str
    """The agent's service account."""
    priority_class: str = ""
    """Their PriorityClass: who preempts one ends all jobs of its GPU."""


def build_server_pod(
    server: GPUServer, partition: GPUPartition, settings: ServerPodSettings
) -> dict[str, Any]:
    """Build the Pod that takes one GPU from the cluster and serves it to jobs.

    It can read the node's processes (hostPID): NVML names those on the GPU by the node's PIDs,
    and an MPS server knows its clients by theirs.
    """
    name = server.metadata.name
    mode = server.spec.mode
    containers = [_agent(server, partition, settings)]
    volumes = [
        _host_path("run", RUN_DIRECTORY),
        _host_path("device-plugins", _DEVICE_PLUGINS, kind="Directory"),
        _host_path("pod-resources", _POD_RESOURCES, kind="Directory"),
    ]
    if mode is SharingMode.MPS:
        containers.insert(0, _mps(server, settings))
    spec: dict[str, Any] = {
        "serviceAccountName": settings.service_account,
        "restartPolicy": "Always",
        "hostPID": True,
        "containers": containers,
        "volumes": volumes,
        "affinity": _affinity(server, partition),
        "tolerations": [*(t.dump() for t in partition.spec.tolerations), *_TOLERATIONS],
    }
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if partition.spec.device_injection == "RuntimeClass":
        spec["runtimeClassName"] = RUNTIME_CLASS
    if partition.spec.node_selector:
        spec["nodeSelector"] = dict(partition.spec.node_selector)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {
                LABEL_COMPONENT: COMPONENT_SERVER,
                LABEL_SERVER: name,
                LABEL_PARTITION: server.spec.partition,
            },
            "ownerReferences": [
                {
                    "apiVersion": server.api_version(),
                    "kind": "GPUServer",
                    "name": name,
                    "uid": server.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def _agent(
    server: GPUServer, partition: GPUPartition, settings: ServerPodSettings
) -> dict[str, Any]:
    return {
        "name": "agent",
        "image": settings.image,
        "command": ["partita", "agent"],
        "env": [
            *_identity(server),
            _value("PARTITA_MAX_JOBS", str(server.spec.max_jobs)),
            _value("PARTITA_DEVICE_INJECTION", partition.spec.device_injection),
            _field("PARTITA_NODE", "spec.nodeName"),
            _field("PARTITA_POD", "metadata.name"),
            _field("PARTITA_NAMESPACE", "metadata.namespace"),
            _value("NVIDIA_DRIVER_CAPABILITIES", _DRIVER_CAPABILITIES),
        ],
        "resources": {
            "requests": {"cpu": "10m", "memory": _AGENT_MEMORY, GPU_RESOURCE: "1"},
            "limits": {GPU_RESOURCE: "1"},
        },
        "securityContext": _root(*_AGENT_CAPABILITIES[server.spec.mode]),
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_DIRECTORY},
            {"name": "device-plugins", "mountPath": _DEVICE_PLUGINS},
            {"name": "pod-resources", "mountPath": _POD_RESOURCES, "readOnly": True},
        ],
    }


def _mps(server: GPUServer, settings: ServerPodSettings) -> dict[str, Any]:
    return {
        "name": "mps",
        "image": settings.image,
        "command": ["partita", "agent", "mps"],
        "env": [
            *_identity(server),
            _value("NVIDIA_VISIBLE_DEVICES", "all"),
            _value("NVIDIA_DRIVER_CAPABILITIES", _DRIVER_CAPABILITIES),
        ],
        "resources": {"requests": {"cpu": "10m", "memory": _MPS_MEMORY}},
        # The daemon starts a server under each client's user, and passes it its files.
        "securityContext": {
            **_root("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"),
            "allowPrivilegeEscalation": False,
        },
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_DIRECTORY},
        ],
    }


def _identity(server: GPUServer) -> list[dict[str, Any]]:
    return [
        _value("PARTITA_SERVER", server.metadata.name),
        _value("PARTITA_MODE", server.spec.mode),
    ]


def _affinity(server: GPUServer, partition: GPUPartition) -> dict[str, Any]:
    """Say on which nodes the Pod may be, and which it prefers.

    Exclusive partitions are packed: only there may a job ask for several GPUs, and they must be on
    one node. In the other modes each job has one GPU, and more nodes give the jobs more CPU and
    host memory, and lose fewer of them with a node, so the choice is left to the scheduler.
    """
    fit = _requirements(partition.spec.gpu_selector)
    terms = [{"matchExpressions": [*fit, client]} for client in CLIENTS_MAY_RUN]
    affinity: dict[str, Any] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    if server.spec.mode is SharingMode.EXCLUSIVE:
        mates = {LABEL_COMPONENT: COMPONENT_SERVER, LABEL_PARTITION: server.spec.partition}
        affinity["podAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": _PACKING_WEIGHT,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": mates},
                        "topologyKey": _LABEL_HOST,
                    },
                }
            ]
        }
    return affinity


def _requirements(selector: GPUSelector) -> list[dict[str, Any]]:
    """Turn the selector into node requirements; a node has one kind of GPU as a rule.

    Where it has several, the labels speak of one of them: the agent reports which GPU it got.
    """
    requirements: list[dict[str, Any]] = []
    if selector.products:
        requirements.append(
            {"key": LABEL_PRODUCT, "operator": "In", "values": list(selector.products)}
        )
    if selector.min_memory is not None:
        least = -(-selector.min_memory // MEBI)
        requirements.append({"key": _LABEL_MEMORY, "operator": "Gt", "values": [str(least - 1)]})
    return requirements


def _value(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": str(value)}


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _root(*capabilities: str) -> dict[str, Any]:
    return {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": list(capabilities)}}


def _host_path(name: str, path: str, kind: str = "DirectoryOrCreate") -> dict[str, Any]:
    return {"name": name, "hostPath": {"path": path, "type": kind}}
