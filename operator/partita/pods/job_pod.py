"""The Pod that runs one attempt of a job."""

from dataclasses import dataclass, field
from typing import Any, Final

from partita.constants import (
    ANNOTATION_APPLICATION,
    ANNOTATION_JOB_UID,
    ANNOTATION_MEMORY,
    ANNOTATION_PROCESSES,
    COMPONENT_JOB,
    DEVICE_RESOURCE_PREFIX,
    GPU_RESOURCE,
    GROUP,
    LABEL_ATTEMPT,
    LABEL_COMPONENT,
    LABEL_JOB,
    LABEL_PARTITION,
)
from partita.models import SharedGPUJob, SharingMode
from partita.models.quantities import mebibytes
from partita.models.template import PodTemplate
from partita.pods.allocation import JobAllocation, device_resource
from partita.pods.containers import concurrent_containers
from partita.pods.environment import (
    CONNECTIONS,
    MAX_CONNECTIONS,
    MEMORY_LIMIT,
    MEMORY_REQUEST,
    SM_PARTITION,
    ContainerEnvironment,
    environment,
)
from partita.pods.pytorch_options import (
    ALLOCATOR,
    OLD_ALLOCATOR,
    PYTORCH_FRACTION,
    allocator_variables,
    literal,
)
from partita.pods.template_check import TemplateError, template_problems
from partita.pods.termination import add_pre_stop, extend_grace
from partita.pods.user_namespaces import may_be_root

__all__ = [
    "RUNTIME_CLASS",
    "JobPod",
    "PodSpecBuilder",
    "build_job_pod",
    "device_slots",
    "is_gpu_resource",
    "pod_name",
]

RUNTIME_CLASS: Final = "nvidia"
"""Name of the RuntimeClass that NVIDIA's GPU Operator and the guide of its container toolkit use:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/cdi.html."""


@dataclass(frozen=True, slots=True)
class JobPod:
    """A Pod to create, and notices for its user."""

    manifest: dict[str, Any]
    """The manifest of the Pod."""
    overridden: tuple[str, ...] = ()
    """Environment variables of the user that were replaced, sorted."""
    notices: tuple[str, ...] = ()
    """Sentences on fields of the template that were changed or have no effect."""


def pod_name(job: str, attempt: int) -> str:
    """Return the name of an attempt's Pod. It is unique, so an attempt cannot start twice."""
    return f"{job}-{attempt}"


def build_job_pod(job: SharedGPUJob, allocation: JobAllocation) -> JobPod:
    """Build the Pod of one attempt from the user's template and limit it to its allocation.

    The same job and allocation always result in the same Pod. The template is not changed. The Pod
    gets nothing that Pod Security `restricted` forbids
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/): the agent's device
    plugin mounts pipes and shared memory, so the Pod needs no volume for them.

    Raises
    ------
    TemplateError
        If the template is not valid. The message contains a correction.
    """
    spec = job.spec
    template = spec.template.unpack()
    if problems := template_problems(template):
        raise TemplateError("; ".join(problems))
    containers = device_slots(template)
    ours = environment(
        spec.framework,
        allocation,
        processes=spec.processes,
        containers=containers,
        yields=allocation.yields,
    )
    build = PodSpecBuilder(allocation, ours)
    pod_spec = build.spec(template)
    annotations = {
        ANNOTATION_JOB_UID: job.metadata.uid,
        ANNOTATION_MEMORY: mebibytes(allocation.memory),
        ANNOTATION_PROCESSES: str(spec.processes),
    }
    if spec.application:
        annotations[ANNOTATION_APPLICATION] = spec.application
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job.metadata.name, allocation.attempt),
            "namespace": job.metadata.namespace,
            "labels": {
                **build.metadata("labels", template.labels),
                LABEL_COMPONENT: COMPONENT_JOB,
                LABEL_JOB: job.metadata.name,
                LABEL_ATTEMPT: str(allocation.attempt),
                LABEL_PARTITION: spec.partition,
            },
            "annotations": {**build.metadata("annotations", template.annotations), **annotations},
            "ownerReferences": [
                {
                    "apiVersion": job.api_version(),
                    "kind": "SharedGPUJob",
                    "name": job.metadata.name,
                    "uid": job.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": pod_spec,
    }
    if allocation.driver_limits and containers > 1:
        build.notices.append(_divided(containers, ours))
    notices = (*ours.notices, *dict.fromkeys(build.notices))
    return JobPod(manifest, tuple(sorted(build.overridden)), notices)


def _divided(containers: int, ours: ContainerEnvironment) -> str:
    return (
        f"the GPU memory is divided equally between its {containers} containers that run at the "
        f"same time, because the driver limits each of them: {ours.variables[MEMORY_LIMIT]} MiB "
        "each, with their contexts; use one container if only one needs the GPU"
    )


def device_slots(template: PodTemplate) -> int:
    """Return the number of devices of each GPU that the Pod requests, as the scheduler counts them.

    The template must be valid.
    """
    return concurrent_containers(template.spec.get("initContainers") or [], template.containers)


@dataclass(slots=True)
class PodSpecBuilder:
    """Converts a template to the spec of a Pod with an allocation; records what it changes."""

    allocation: JobAllocation
    ours: ContainerEnvironment
    overridden: set[str] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)

    def metadata(self, kind: str, values: dict[str, str]) -> dict[str, str]:
        """Return labels or annotations without the names that only the operator may set.

        The admission policy rejects such names in Pods that the operator does not create.
        """
        reserved = sorted(name for name in values if name.startswith(f"{GROUP}/"))
        if reserved:
            self.notices.append(
                f"template.metadata.{kind} has {', '.join(reserved)}, which is removed: names that "
                f"begin with {GROUP}/ are set by Partita alone"
            )
        return {name: value for name, value in values.items() if name not in reserved}

    def spec(self, template: PodTemplate) -> dict[str, Any]:
        """Return the spec of the Pod."""
        spec: dict[str, Any] = template.spec
        if (policy := spec.get("restartPolicy")) and policy != "Never":
            self.notices.append(
                f"restartPolicy {policy} is replaced by Never: write spec.retry instead"
            )
        spec["restartPolicy"] = "Never"
        if spec.pop("nodeName", None):
            # With nodeName the Pod would bypass the scheduler, which counts the GPU's devices.
            self.notices.append("nodeName is removed: the node follows from the job's GPU")
        if spec.get("terminationGracePeriodSeconds") == 0:
            # The API server removes a Pod without a grace period at once, before kubelet has ended
            # its programs (k8s.io/kubernetes, pkg/registry/core/pod/strategy.go,
            # CheckGracefulDelete). The GPU memory would be allocated again while still in use.
            spec["terminationGracePeriodSeconds"] = 1
            self.notices.append(
                "terminationGracePeriodSeconds 0 is replaced by 1: its GPU memory is given to "
                "others once its Pod is gone, and its programs must have ended by then"
            )
        if self.allocation.mode is SharingMode.MPS:
            extend_grace(spec)
        own = spec.get("tolerations") or []
        if isinstance(own, list):  # the API server rejects any other type
            asked = [toleration.dump() for toleration in self.allocation.tolerations]
            missing = [toleration for toleration in asked if toleration not in own]
            spec |= {"tolerations": [*own, *missing]} if missing else {}
        if self.allocation.device_injection == "RuntimeClass":
            if (own := spec.get("runtimeClassName")) and own != RUNTIME_CLASS:
                self.notices.append(
                    f"runtimeClassName {own} is replaced by {RUNTIME_CLASS}: "
                    "the partition's deviceInjection is RuntimeClass"
                )
            spec["runtimeClassName"] = RUNTIME_CLASS
        if self.allocation.protocol == 3 and (root := may_be_root(spec)):
            # Root in a user namespace cannot change the limits of MPS.
            spec["hostUsers"] = False
            self.notices.append(
                f"hostUsers is set to false, because {', '.join(root)} may run as root: set "
                "runAsNonRoot: true and allowPrivilegeEscalation: false to avoid a user namespace"
            )
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [self._container(c, init=kind == "initContainers") for c in spec[kind]]
        return spec

    def _container(self, container: dict[str, Any], *, init: bool) -> dict[str, Any]:
        sidecar = container.get("restartPolicy") == "Always"
        if (
            self.allocation.mode is SharingMode.MPS
            and (not init or sidecar)
            and (notice := add_pre_stop(container))
        ):
            self.notices.append(notice)
        container["env"] = self._env(container)
        container["resources"] = self._resources(container)
        # kubelet copies the end of the log, which contains CUDA's error, to the Pod's status:
        # https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
        return container

    def _env(self, container: dict[str, Any]) -> list[dict[str, Any]]:
        """Merge the operator's variables into the user's.

        A variable that the user also sets keeps the user's position, since a value may refer to
        earlier variables. Variables of `envFrom` are not available here, but `env` overrides them
        (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/,
        Container.envFrom).
        """
        users: list[dict[str, Any]] = container.get("env") or []
        ours = {**self.ours.variables, **self._allocator(container, users)}
        if literal(users, CONNECTIONS) in {str(n + 1) for n in range(MAX_CONNECTIONS)}:
            ours.pop(CONNECTIONS, None)  # the user may choose fewer
        merged: dict[str, dict[str, Any]] = {
            name: {"name": name, "value": value}
            for name, value in ours.items()
            if all(e["name"] != name for e in users)
        }
        rest: list[dict[str, Any]] = []
        for entry in users:
            name = entry["name"]
            if name in {MEMORY_REQUEST, MEMORY_LIMIT} - ours.keys():
                # NVIDIA's container toolkit would apply them, or fail on an older driver.
                self.notices.append(
                    f"container {container['name']} sets {name}, which is removed: write "
                    "spec.gpuMemory instead"
                )
                continue
            if name == SM_PARTITION:
                self.overridden.add(name)  # the device plugin sets it
                continue
            if name not in ours:
                rest.append(entry)
                continue
            same = "valueFrom" not in entry and (entry.get("value") or "") == ours[name]
            if not same and not self._extends(entry):
                self.overridden.add(name)
            if not any(e["name"] == name for e in rest):
                rest.append({"name": name, "value": ours[name]})
        return [*merged.values(), *rest]

    def _allocator(self, container: dict[str, Any], users: list[dict[str, Any]]) -> dict[str, str]:
        """Return the variables that limit PyTorch's allocator."""
        fraction = self.ours.pytorch_fraction
        if fraction is None:
            return {}
        new, old = (literal(users, name) for name in (ALLOCATOR, OLD_ALLOCATOR))
        variables = allocator_variables(new, old, fraction)
        if OLD_ALLOCATOR not in variables and any(e["name"] == OLD_ALLOCATOR for e in users):
            self.notices.append(
                f"container {container['name']} sets {OLD_ALLOCATOR}, so PyTorch's own "
                f"memory limit may not be set: write its options to {ALLOCATOR} (PyTorch over 2.9)"
            )
        return variables

    def _extends(self, entry: dict[str, Any]) -> bool:
        """Return whether the operator only adds an option to the user's value."""
        return (
            entry["name"] == ALLOCATOR
            and "valueFrom" not in entry
            and PYTORCH_FRACTION not in (entry.get("value") or "")
        )

    def _resources(self, container: dict[str, Any]) -> dict[str, Any]:
        resources: dict[str, Any] = dict(container.get("resources") or {})
        ours = {device_resource(uuid): "1" for uuid in self.allocation.uuids}
        removed: set[str] = set()
        for kind in ("requests", "limits"):
            amounts: dict[str, Any] = resources.get(kind) or {}
            taken = {name for name in amounts if is_gpu_resource(name)}
            removed |= taken
            resources[kind] = {k: v for k, v in amounts.items() if k not in taken} | ours
        if removed:
            # With these requests the Pod would get a whole GPU in addition to its allocation.
            self.notices.append(
                f"container {container['name']} requests {', '.join(sorted(removed))}, which "
                "is removed: a job gets its GPU from the partition"
            )
        return resources


def is_gpu_resource(name: str) -> bool:
    """Return whether a resource is a GPU: whole, shared (`nvidia.com/gpu.shared`) or MIG."""
    return name.startswith((GPU_RESOURCE, "nvidia.com/mig-", DEVICE_RESOURCE_PREFIX))
