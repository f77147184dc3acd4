"""Checks of the nodes with GPUs, from what Kubernetes and NVIDIA's labels say. Pure functions.

Labels of GPU feature discovery:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md,
"Generated Labels".
"""

import os
from collections.abc import Iterator
from typing import Any, Final

from partita.cli.doctor.check_result import CheckResult, not_applicable, not_checked, ok, problem
from partita.cli.doctor.cluster_checks import OLDEST, minor_of
from partita.cli.doctor.cluster_facts import ClusterFacts, is_server_pod
from partita.cli.doctor.dra_gpus import dra_gpus, free_dra_gpus, nodes_with_dra_gpus
from partita.constants import GPU_RESOURCE, KUBELET_DIRECTORY
from partita.models.quantities import parse_amount
from partita.pods.requests import effective_requests
from partita.pods.server_pod import SELINUX_OPTIONS
from partita.pods.user_namespaces import has_user_namespaces

__all__ = ["check_nodes", "free_gpus", "gpu_nodes", "is_schedulable"]

Json = dict[str, Any]

_PRESENT: Final = "nvidia.com/gpu.present"
_PLUGIN: Final = "install NVIDIA's device plugin or its DRA driver, alone or with the GPU operator"
_KUBELET_SOCKETS: Final = ("/plugins_registry", "/device-plugins", "/pod-resources")
"""Folders of kubelet's directory that only Pods which talk to kubelet mount, such as NVIDIA's
device plugin and CSI drivers (https://kubernetes.io/docs/reference/node/kubelet-files/)."""
_OLDEST_DRIVER: Final = 495
"""First driver with CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: `partita.agent.gpu.discovery`."""
_SM_PARTITIONS: Final = 610
_DRIVER_LIMITS: Final = 615
"""First drivers that isolate faults between static SM partitions, and with memory limits and MPS
protocol 3: https://docs.nvidia.com/deploy/mps/, release 615."""


def check_nodes(facts: ClusterFacts, only: str) -> Iterator[CheckResult]:
    """Check each node with GPUs, or the one of this name."""
    if unread := facts.unread("nodes"):
        yield not_checked(unread).of("nodes")
        return
    names = {node["metadata"]["name"] for node in facts.nodes}
    if only and only not in names:
        missing = problem(f"there is no node {only}", "name one of `kubectl get nodes`")
        yield missing.of("nodes")
        return
    found = [node for node in gpu_nodes(facts) if only in {"", node["metadata"]["name"]}]
    if not found:
        said = f"node {only} has no NVIDIA GPU" if only else "no node has an NVIDIA GPU"
        yield problem(f"{said} that Kubernetes knows", _PLUGIN).of("nodes")
        return
    for node in found:
        for check, examine in _CHECKS.items():
            unread = facts.unread(*_READS.get(check, ()))
            result = not_checked(unread) if unread else examine(node, facts)
            yield result.of(check, node["metadata"]["name"])


def gpu_nodes(facts: ClusterFacts) -> list[Json]:
    """Return the nodes with a GPU: by resource, by label, or by devices of NVIDIA's DRA driver."""
    by_dra = nodes_with_dra_gpus(facts)
    return [
        node
        for node in facts.nodes
        if _amounts(node, "capacity")
        or _labels(node).get(_PRESENT) == "true"
        or node["metadata"]["name"] in by_dra
    ]


def is_schedulable(node: Json) -> bool:
    """Return whether new Pods may start on a node."""
    return not (node.get("spec") or {}).get("unschedulable")


def free_gpus(facts: ClusterFacts, node: Json) -> int:
    """Return how many whole GPUs of a node no Pod has requested."""
    if not is_schedulable(node):
        return 0
    requested = sum(
        effective_requests(pod["spec"]).get(GPU_RESOURCE, 0)
        for pod in facts.pods_on(node)
        if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
    )
    return _amounts(node, "allocatable").get(GPU_RESOURCE, 0) - requested


def _kubelet(node: Json, _facts: ClusterFacts) -> CheckResult:
    text = str(_info(node).get("kubeletVersion", ""))
    found = minor_of(text)
    if found is None:
        return not_checked("its version is not reported")
    if found < OLDEST:
        return problem(
            f"{text}: kubelet serves claims by resource.k8s.io/v1 from 1.34 on", "upgrade the node"
        )
    return ok(text)


def _kubelet_directory(node: Json, facts: ClusterFacts) -> CheckResult:
    """Compare kubelet's directory, as other Pods of the node mount it, with the installation's.

    The flag `--root-dir` is in no answer of kubelet: `/configz` has the fields of its file only
    (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/).
    """
    mounted = {
        path.rpartition("/")[0]
        for pod in facts.pods_on(node)
        if not is_server_pod(pod)
        for volume in pod["spec"].get("volumes") or ()
        if (path := (volume.get("hostPath") or {}).get("path", "").rstrip("/")).endswith(
            _KUBELET_SOCKETS
        )
    }
    if not mounted:
        return not_checked(
            "no Pod of the node mounts a folder of it: if kubelet has a --root-dir, set "
            f"PARTITA_KUBELET_DIRECTORY of the operator to it, or {KUBELET_DIRECTORY} is used"
        )
    used = _used_directory(facts)
    if mounted == {used}:
        return ok(used)
    found = ", ".join(sorted(mounted))
    if used in mounted:  # as NVIDIA's plugin mounts the default where it is a link
        return not_checked(f"Partita uses {used}, other Pods of the node use {found}")
    return problem(
        f"other Pods of the node use {found}, and Partita {used}",
        f"set PARTITA_KUBELET_DIRECTORY={min(mounted)} in the operator's Deployment",
    )


def _used_directory(facts: ClusterFacts) -> str:
    """Return the operator's setting, or its default."""
    name, variable = "--kubelet-directory", "PARTITA_KUBELET_DIRECTORY"
    for container in (c for pod in facts.pods for c in pod["spec"]["containers"]):
        if container["name"] != "operator":
            continue
        args = " ".join(container.get("args") or ()).replace("=", " ").split()
        if name in args[:-1]:
            return os.path.normpath(str(args[args.index(name) + 1]))
        for one in container.get("env") or ():
            if one["name"] == variable and one.get("value"):
                return os.path.normpath(str(one["value"]))
    return KUBELET_DIRECTORY


def _runtime(node: Json, _facts: ClusterFacts) -> CheckResult:
    """Check that the container runtime reads CDI files, with which claims reach containers.

    CDI is on by default in containerd 2.0 (docs/cri/config.md, `enable_cdi`) and in CRI-O
    (docs/crio.conf.5.md, `cdi_spec_dirs`).
    """
    text = str(_info(node).get("containerRuntimeVersion", ""))
    kind, _, version = text.partition("://")
    if not kind:
        return not_checked("it is not reported")
    if kind not in {"containerd", "cri-o"}:
        return problem(text, "use containerd 1.7 or newer, or CRI-O")
    if kind == "containerd" and (minor_of(version) or (0, 0)) < (1, 7):
        return problem(text, "upgrade containerd to 1.7 or newer")
    if kind == "containerd" and (minor_of(version) or (0, 0)) < (2, 0):
        found = f"{text} reads CDI files only with `enable_cdi = true` in its configuration"
        return not_checked(found, "set it, or upgrade to containerd 2")
    return ok(f"{text} reads CDI files by default")


def _gpu_source(node: Json, facts: ClusterFacts) -> CheckResult:
    labels, name = _labels(node), node["metadata"]["name"]
    allocatable = _amounts(node, "allocatable").get(GPU_RESOURCE, 0)
    by_dra = dra_gpus(facts, name)
    if by_dra and allocatable:
        return problem(
            f"its GPUs are offered twice: {allocatable} {GPU_RESOURCE}, and {by_dra} by DRA",
            "turn NVIDIA's device plugin or its DRA driver off on this node",
        )
    if by_dra:
        free = free_dra_gpus(facts, name)
        return ok(f"{by_dra} GPUs by DRA, {free} free: partitions need gpuSource: DRA")
    if not allocatable:
        return problem(f"it offers no {GPU_RESOURCE}", _PLUGIN)
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    replicas = labels.get("nvidia.com/gpu.replicas", "1")
    if strategy not in {"none", ""} or replicas not in {"0", "1"}:
        return problem(
            f"the plugin shares each GPU itself ({strategy}, {replicas} replicas)",
            "turn the plugin's own sharing off on this node",
        )
    free = free_gpus(facts, node)
    return ok(f"{allocatable} {GPU_RESOURCE}, {free} free")


def _gpu_kind(node: Json, _facts: ClusterFacts) -> CheckResult:
    labels = _labels(node)
    slices = sorted(key for key in _amounts(node, "allocatable") if "/mig-" in key)
    product = labels.get("nvidia.com/gpu.product", "")
    if slices or "-MIG-" in product:
        return problem(
            f"MIG is on: {', '.join(slices) or product}",
            "turn MIG off on the GPUs that Partita is to share",
        )
    if labels.get("nvidia.com/vgpu.present") == "true":
        return problem(
            "its GPUs are vGPUs, in which MPS is not known to work",
            "pass whole GPUs through to the virtual machine, or share by TimeSlicing",
        )
    if product and "nvidia.com/gpu.memory" not in labels:
        return problem(
            f"{product} has no memory of its own to divide",
            "exclude the node from partitions (gpuSelector)",
        )
    if not labels:
        return not_checked("GPU feature discovery has set no labels")
    return ok("whole GPUs")


def _driver(node: Json, _facts: ClusterFacts) -> CheckResult:
    version, cuda = _version(node, "driver"), _version(node, "runtime")
    major = version.partition(".")[0]
    if not major.isdigit():
        return not_checked("GPU feature discovery does not say its version")
    said = f"{version}, CUDA {cuda or 'unknown'}"
    if int(major) < _OLDEST_DRIVER:
        return problem(
            f"{said}: its MPS has no memory limits", f"install driver {_OLDEST_DRIVER} or newer"
        )
    if int(major) >= _DRIVER_LIMITS:
        return ok(f"{said}: memory limits by the driver, MPS protocol 3")
    if int(major) >= _SM_PARTITIONS:
        return ok(f"{said}: isolated SM partitions; limits by MPS")
    return ok(f"{said}: limits by MPS")


def _injection(_node: Json, facts: ClusterFacts) -> CheckResult:
    if "nvidia" in facts.runtime_classes:
        return ok("RuntimeClass nvidia exists")
    asking = [
        partition["metadata"]["name"]
        for partition in facts.partitions
        if (partition.get("spec") or {}).get("deviceInjection") == "RuntimeClass"
    ]
    if asking:
        return problem(
            f"there is no RuntimeClass nvidia, which {', '.join(asking)} asks for",
            "create it (GPU Operator does), or set deviceInjection: Auto in the partition",
        )
    return not_applicable(
        "there is none: NVIDIA's runtime must be the node's default, or CDI must be enabled"
    )


def _selinux(node: Json, facts: ClusterFacts) -> CheckResult:
    """Admission, such as an SCC of OpenShift, may have changed the type of the server Pods."""
    found = {
        ((pod["spec"].get("securityContext") or {}).get("seLinuxOptions") or {}).get("type", "none")
        for pod in facts.pods_on(node)
        if is_server_pod(pod)
    }
    if not found:
        return not_checked("no server Pod is on the node, and Kubernetes does not report SELinux")
    if found != {SELINUX_OPTIONS["type"]}:
        return problem(
            f"server Pods have SELinux type {', '.join(sorted(found))}",
            f"let admission keep {SELINUX_OPTIONS['type']}, which matters where SELinux enforces",
        )
    return ok(f"server Pods have SELinux type {SELINUX_OPTIONS['type']}")


def _user_namespaces(node: Json, _facts: ClusterFacts) -> CheckResult:
    """Pods whose user is root get a user namespace under MPS protocol 3."""
    if has_user_namespaces(node):
        return ok("the runtime supports them")
    return not_applicable(
        "the runtime does not report them: MPS protocol 3 takes no Pods that run as root"
    )


def _driver_limits(node: Json, facts: ClusterFacts) -> CheckResult:
    """Whether the driver's limits work is known only once a container had one."""
    statuses = [server.get("status") or {} for server in facts.servers]
    hooks = {
        (status.get("capabilities") or {}).get("limitHook")
        for status in statuses
        if status.get("node") == node["metadata"]["name"]
    }
    if hooks & {"NotApplied", "Failed"}:
        return problem(
            "NVIDIA's container toolkit does not apply memory limits",
            "install version 1.20.1 or newer of it, not in mode legacy, and look at the condition "
            "DriverLimits of the node's GPUServers",
        )
    if "Applied" in hooks:
        return ok("shown to work by the operator's probe Pod")
    major = _version(node, "driver").partition(".")[0]
    if major.isdigit() and int(major) < _DRIVER_LIMITS:
        return not_applicable(f"they need driver r{_DRIVER_LIMITS}")
    return not_checked("only a GPU of a partition shows it")


_CHECKS: Final = {
    "kubelet": _kubelet,
    "kubelet-directory": _kubelet_directory,
    "container-runtime": _runtime,
    "gpu-source": _gpu_source,
    "gpu-kind": _gpu_kind,
    "driver": _driver,
    "runtime-class": _injection,
    "selinux": _selinux,
    "user-namespaces": _user_namespaces,
    "driver-limits": _driver_limits,
}
"""The checks of one node, in the order in which their results are shown."""
_READS: Final = {
    "kubelet-directory": ("pods",),
    "gpu-source": ("pods", "resourceclaims", "resourceslices"),
    "runtime-class": ("runtimeclasses", "gpupartitions"),
    "selinux": ("pods",),
    "driver-limits": ("gpuservers",),
}
"""The objects that a check needs beside the node, by plural."""


def _version(node: Json, what: str) -> str:
    """Return the version of the driver or of its CUDA `runtime`; empty if no label says it.

    Old releases of GPU feature discovery set only the deprecated labels of the parts.
    """
    labels = _labels(node)
    if full := labels.get(f"nvidia.com/cuda.{what}-version.full"):
        return full
    parts = (labels.get(f"nvidia.com/cuda.{what}.{part}") for part in ("major", "minor", "rev"))
    return ".".join(filter(None, parts))


def _labels(node: Json) -> dict[str, str]:
    labels = node["metadata"].get("labels") or {}
    return {key: str(value) for key, value in labels.items() if key.startswith("nvidia.com/")}


def _amounts(node: Json, which: str) -> dict[str, int]:
    """Return NVIDIA's resources of a node and their amounts."""
    amounts = (node.get("status") or {}).get(which) or {}
    return {
        key: count
        for key, value in amounts.items()
        if key.startswith("nvidia.com/") and (count := int(parse_amount(key, value)))
    }


def _info(node: Json) -> Json:
    return dict((node.get("status") or {}).get("nodeInfo") or {})
