"""The server Pod, which reserves one GPU for a partition.

With the partition's `gpuSource: DRA` both containers name the Pod's claim of one GPU
(`partita.pods.gpu_claim`), and get this GPU alone. The rest of this text is about `DevicePlugin`.

Its container `agent` requests one `nvidia.com/gpu` in every mode, because it needs the UUID of the
Pod's GPU. NVIDIA's device plugin assigns the GPU only to the container that requests it. The agent
reads the UUID from the kubelet's PodResources API
(https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/,
"Monitoring device plugin resources"), which works with each of the plugin's strategies.

Its container `mps` needs access to the GPU without requesting it. It requests all GPUs of the node
from NVIDIA's runtime by `NVIDIA_VISIBLE_DEVICES=all`, as the MPS daemon of NVIDIA's own plugin does
(https://github.com/NVIDIA/k8s-device-plugin, deployments/helm/nvidia-device-plugin/templates/
daemonset-mps-control-daemon.yml). Then it waits for the UUID that the agent writes under
`/run/partita`, and restricts itself to this GPU by `CUDA_VISIBLE_DEVICES=<uuid>`. So NVIDIA's
runtime must be the node's default runtime unless the partition's deviceInjection is RuntimeClass.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final

from partita.constants import (
    ANNOTATION_TEMPLATE,
    COMPONENT_SERVER,
    DRIVER,
    GPU_RESOURCE,
    KUBELET_DIRECTORY,
    LABEL_COMPONENT,
    LABEL_PARTITION,
    LABEL_SERVER,
)
from partita.models import GPUPartition, GPUServer, SharingMode
from partita.models.partition import GPUSelector
from partita.models.quantities import MEBI
from partita.pods.content_hash import content_hash
from partita.pods.gpu_claim import POD_CLAIM, gpu_claim_template_name
from partita.pods.gpu_operator import CLIENTS_MAY_RUN, LABEL_PRODUCT
from partita.pods.job_pod import RUNTIME_CLASS
from partita.pods.mps_directories import RUN_DIRECTORY

__all__ = ["SELINUX_OPTIONS", "ServerPodSettings", "build_server_pod", "server_pod_hash"]

_CDI: Final = "/var/run/cdi"
"""Directory in which the container runtime finds CDI files."""

_CGROUPS: Final = "/sys/fs/cgroup"
"""The node's cgroups. The driver reads and writes limits of GPU memory there, and requires this
path (https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html); a container has only its
own cgroup under it."""

SELINUX_OPTIONS: Final = {"type": "spc_t", "level": "s0"}
"""What lets the containers use the node's directories and kubelet's sockets, and lets jobs use the
sockets of the MPS server: `container_domain spc_t:unix_stream_socket` in container.te of
https://github.com/containers/container-selinux. Bottlerocket knows the type as an alias
(packages/selinux-policy/subject.cil of https://github.com/bottlerocket-os/bottlerocket-core-kit).
With level s0, files have no categories of this Pod alone. Without SELinux it has no effect."""

_METRICS_PORT: Final = 8080
"""Port of the agent's metrics, named `metrics`: the Pod has an address of its own."""

_LABEL_MEMORY: Final = "nvidia.com/gpu.memory"
"""Label of the GPU's memory in MiB, set by GPU feature discovery like `LABEL_PRODUCT`."""
_LABEL_HOST: Final = "kubernetes.io/hostname"

_AGENT_MEMORY: Final = "64Mi"
"""More than the measured 56 MB (docs/performance.md, "What does it cost?"). When a node runs out of
memory, kubelet first ends containers that use more than their request. A canary client takes 11 MB
and the host memory of a CUDA context in addition, for about a second."""
_MPS_MEMORY: Final = "128Mi"
"""38.2 MB for the program that keeps the daemon running (measured, the same page), about 50 MiB for
the MPS server (NVIDIA's MPS documentation, release 615: host memory for each GPU's context), and
the rest for the control daemon (an assumption)."""

_TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{problem}", "operator": "Exists", "effect": "NoExecute"}
    for problem in ("not-ready", "unreachable")
)
"""Those tolerations of a DaemonSet's Pods
(https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/, "Taints and tolerations")
that prevent the deletion of a running Pod. A node that does not respond for more than five minutes
may still run jobs. If the Pod were deleted, their MPS server would end as soon as the node responds
again. The other tolerations affect only where a new Pod may start, and are left out. On a cordoned
node (`unschedulable`) a new Pod would occupy the GPU that a drain has just released. On a node
under memory, disk or PID pressure no job could start (under disk or PID pressure kubelet would not
admit the Pod itself)."""

_PACKING_WEIGHT: Final = 100
"""The largest weight that Kubernetes allows."""
_DRIVER_CAPABILITIES: Final = "compute,utility"
"""`compute` for CUDA and MPS, `utility` for NVML: https://docs.nvidia.com/datacenter/cloud-native/
container-toolkit/latest/docker-specialized.html, "Driver Capabilities"."""


# Setting the GPU's compute mode needs administrator rights on the node: "Requires root
# permissions", nvmlDeviceSetComputeMode in https://docs.nvidia.com/deploy/nvml-api/. With
# SYS_ADMIN, allowPrivilegeEscalation cannot be false. In mode TimeSlicing only a signal can end a
# program above its allocation, and the program runs as another user, which requires KILL.
_AGENT_CAPABILITIES: Final = {
    SharingMode.MPS: ("SYS_ADMIN",),
    SharingMode.TIME_SLICING: ("KILL", "SYS_ADMIN"),
    SharingMode.EXCLUSIVE: ("SYS_ADMIN",),
}


@dataclass(frozen=True, slots=True)
class ServerPodSettings:
    """Settings of server Pods that the operator's installation determines."""

    namespace: str
    """Namespace of the server Pods."""
    image: str
    """Partita's image, used by both containers."""
    service_account: str
    """The agent's service account."""
    priority_class: str = ""
    """PriorityClass of the server Pods: preemption of one would end all jobs of its GPU."""
    kubelet_directory: str = KUBELET_DIRECTORY
    """kubelet's `--root-dir` on the nodes of the GPUs. The containers see it at the same path,
    because kubelet opens the socket of a driver at the path that the driver says."""

    @property
    def plugins_registry(self) -> str:
        """Directory in which kubelet finds the sockets of DRA drivers."""
        return f"{self.kubelet_directory}/plugins_registry"

    @property
    def driver(self) -> str:
        """Directory of the sockets by which kubelet and the agents of the node reach the agent."""
        return f"{self.kubelet_directory}/plugins/{DRIVER}"

    @property
    def pod_resources(self) -> str:
        """Directory of the socket on which kubelet reports the devices of Pods."""
        return f"{self.kubelet_directory}/pod-resources"


def build_server_pod(
    server: GPUServer, partition: GPUPartition, settings: ServerPodSettings, *, node: str = ""
) -> dict[str, Any]:
    """Build the Pod that requests one GPU from the cluster and provides it to jobs.

    Parameters
    ----------
    node
        The only node that it may run on; empty for any node. The hash in its annotation differs for
        such a Pod: it is replaced if it still waits when nothing of that node needs it any more.

    Notes
    -----
    It can read the node's processes (hostPID), because NVML and the MPS server identify processes
    by the node's PIDs.
    """
    name = server.metadata.name
    mode = server.spec.mode
    containers = [_agent(server, partition, settings)]
    volumes = [
        _host_path("run", RUN_DIRECTORY),
        _host_path("plugins-registry", settings.plugins_registry, kind="Directory"),
        _host_path("driver", settings.driver),
        _host_path("cdi", _CDI),
        _host_path("pod-resources", settings.pod_resources, kind="Directory"),
    ]
    if mode is SharingMode.MPS:
        containers.insert(0, _mps(server, partition, settings))
        volumes.append(_host_path("cgroups", _CGROUPS, kind="Directory"))
    spec: dict[str, Any] = {
        "serviceAccountName": settings.service_account,
        "restartPolicy": "Always",
        "hostPID": True,
        "securityContext": {"seLinuxOptions": dict(SELINUX_OPTIONS)},
        "containers": containers,
        "volumes": volumes,
        "affinity": _affinity(server, partition, node),
        "tolerations": [*(t.dump() for t in partition.spec.tolerations), *_TOLERATIONS],
    }
    if _has_claim(partition):
        name_of_template = gpu_claim_template_name(partition)
        spec["resourceClaims"] = [
            {"name": POD_CLAIM, "resourceClaimTemplateName": name_of_template}
        ]
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
            "annotations": {ANNOTATION_TEMPLATE: server_pod_hash(partition, settings) + node},
            "ownerReferences": [server.owner_reference()],
        },
        "spec": spec,
    }


def server_pod_hash(partition: GPUPartition, settings: ServerPodSettings) -> str:
    """Return a hash of what may change in the server Pods of a partition whose GPUServers stay.

    Two partitions with the same hash get the same Pods, except for names and sharing modes.
    """
    spec = partition.spec
    content = {
        "settings": asdict(settings),
        "nodeSelector": spec.node_selector,
        "tolerations": [toleration.dump() for toleration in spec.tolerations],
        "gpuSelector": spec.gpu_selector.dump(),
        "gpuSource": spec.gpu_source,
        "deviceInjection": spec.device_injection,
    }
    return content_hash(content)


def _agent(
    server: GPUServer, partition: GPUPartition, settings: ServerPodSettings
) -> dict[str, Any]:
    mounts = [
        {"name": "run", "mountPath": RUN_DIRECTORY},
        {"name": "plugins-registry", "mountPath": settings.plugins_registry},
        {"name": "driver", "mountPath": settings.driver},
        {"name": "cdi", "mountPath": _CDI},
        {"name": "pod-resources", "mountPath": settings.pod_resources, "readOnly": True},
    ]
    if server.spec.mode is SharingMode.MPS:
        mounts.append({"name": "cgroups", "mountPath": _CGROUPS})
    return {
        "name": "agent",
        "image": settings.image,
        "command": ["partita", "agent"],
        "env": [
            _value("PARTITA_SERVER", server.metadata.name),
            _value("PARTITA_MODE", server.spec.mode),
            _value("PARTITA_DEVICE_INJECTION", partition.spec.device_injection),
            _field("PARTITA_NODE", "spec.nodeName"),
            _field("PARTITA_NAMESPACE", "metadata.namespace"),
            _field("PARTITA_POD_UID", "metadata.uid"),
            _value("PARTITA_KUBELET_DIRECTORY", settings.kubelet_directory),
            _value("PARTITA_METRICS_PORT", str(_METRICS_PORT)),
            _value("NVIDIA_DRIVER_CAPABILITIES", _DRIVER_CAPABILITIES),
        ],
        "ports": [{"name": "metrics", "containerPort": _METRICS_PORT}],
        "resources": _resources(partition, _AGENT_MEMORY, requests_gpu=True),
        "securityContext": _root(*_AGENT_CAPABILITIES[server.spec.mode]),
        "volumeMounts": mounts,
    }


def _mps(server: GPUServer, partition: GPUPartition, settings: ServerPodSettings) -> dict[str, Any]:
    every_gpu = [] if _has_claim(partition) else [_value("NVIDIA_VISIBLE_DEVICES", "all")]
    return {
        "name": "mps",
        "image": settings.image,
        "command": ["partita", "agent", "mps"],
        "env": [
            _value("PARTITA_SERVER", server.metadata.name),
            *every_gpu,
            _value("NVIDIA_DRIVER_CAPABILITIES", _DRIVER_CAPABILITIES),
        ],
        "resources": _resources(partition, _MPS_MEMORY),
        # The daemon starts a server as the user of each client and changes the owner of its files.
        "securityContext": {
            **_root("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"),
            "allowPrivilegeEscalation": False,
        },
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_DIRECTORY},
        ],
    }


def _has_claim(partition: GPUPartition) -> bool:
    return partition.spec.gpu_source == "DRA"


def _resources(
    partition: GPUPartition, memory: str, *, requests_gpu: bool = False
) -> dict[str, Any]:
    """Return the resources of a container.

    Parameters
    ----------
    memory
        Memory that it requests.
    requests_gpu
        Whether it requests the GPU where there is no claim.
    """
    resources: dict[str, Any] = {"requests": {"cpu": "10m", "memory": memory}}
    if _has_claim(partition):
        resources["claims"] = [{"name": POD_CLAIM}]
    elif requests_gpu:
        resources["requests"][GPU_RESOURCE] = "1"
        resources["limits"] = {GPU_RESOURCE: "1"}
    return resources


def _affinity(server: GPUServer, partition: GPUPartition, node: str) -> dict[str, Any]:
    """Return the required and the preferred nodes of the Pod.

    Exclusive partitions are packed: only there can a job request several GPUs, which must be on
    one node. In the other modes each job has one GPU, so the scheduler chooses the nodes. More
    nodes provide more CPU and host memory, and the failure of a node affects fewer jobs.
    """
    # A claim selects the GPU itself; GPU Operator labels no nodes by product and memory then.
    fit = [] if _has_claim(partition) else _requirements(partition.spec.gpu_selector)
    only = [{"key": "metadata.name", "operator": "In", "values": [node]}] if node else []
    fields = {"matchFields": only} if only else {}
    terms = [{"matchExpressions": [*fit, client], **fields} for client in CLIENTS_MAY_RUN]
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
    """Convert the selector to node requirements.

    A node usually has GPUs of one product. If it has several products, the labels describe only
    one of them, and the agent reports the GPU of the Pod.
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
