"""The Pod that runs one attempt of a job."""

from dataclasses import dataclass, field
from typing import Any, Final

from partita.constants import (
    ALLOCATION_GATE,
    ANNOTATION_APPLICATION,
    ANNOTATION_JOB_UID,
    ANNOTATION_MEMORY,
    ANNOTATION_PROCESSES,
    ANNOTATION_TEMPLATE,
    COMPONENT_JOB,
    GPU_RESOURCE,
    GROUP,
    LABEL_ATTEMPT,
    LABEL_COMPONENT,
    LABEL_JOB,
    LABEL_PARTITION,
    LIMIT_MEMORY,
    LIMIT_THREADS,
)
from partita.models import SharedGPUJob, SharingMode
from partita.models.quantities import mebibytes
from partita.models.template import PodTemplate
from partita.pods.allocation import JobAllocation
from partita.pods.containers import concurrent_containers, restarts_itself
from partita.pods.content_hash import content_hash
from partita.pods.environment import (
    MEMORY_LIMIT,
    ContainerEnvironment,
    environment,
    shared_variables,
)
from partita.pods.own_claims import own_claim_name, use_claim
from partita.pods.template_check import TemplateError, template_problems
from partita.pods.termination import add_pre_stop, extend_grace
from partita.pods.user_namespaces import may_be_root
from partita.pods.user_variables import UserVariables

__all__ = [
    "RUNS_ONCE",
    "RUNTIME_CLASS",
    "JobPod",
    "PodSpecBuilder",
    "build_job_pod",
    "gpu_containers",
    "is_gpu_resource",
    "job_labels",
    "pod_name",
]

RUNTIME_CLASS: Final = "nvidia"
"""Name of the RuntimeClass that NVIDIA's GPU Operator and the guide of its container toolkit use:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/cdi.html."""

RUNS_ONCE: Final = (
    "the containers of a job run once, so that its end is seen. Write spec.retry to start it "
    "again, and a container that runs beside it as an init container with restartPolicy Always"
)
"""What to write instead of the restart policy of a container."""


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
    """Build the Pod of one attempt from the user's template.

    It names a claim for its GPUs, and has a scheduling gate until the claim is allocated. What
    limits the Pod to its allocation comes with the claim, from the agent
    (`partita.agent.dra.device`): variables, and the directory of MPS. So the Pod gets nothing that
    Pod Security `restricted` forbids
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/). The same job and
    allocation always result in the same Pod. Its annotation `partita.dev/template-hash` tells it
    from the Pod for another allocation. The template is not changed.

    Raises
    ------
    TemplateError
        If the template is not valid. The message contains a correction.
    """
    spec = job.spec
    template = spec.template.unpack()
    if problems := template_problems(template):
        raise TemplateError("; ".join(map(str, problems)))
    containers = gpu_containers(template)
    ours = environment(
        spec.framework,
        allocation,
        processes=spec.processes,
        containers=containers,
    )
    name = pod_name(job.metadata.name, allocation.attempt)
    build = PodSpecBuilder(allocation, ours, own_claim_name(name))
    pod_spec = build.spec(template)
    pod_spec["schedulingGates"] = [
        *(pod_spec.get("schedulingGates") or ()),
        {"name": ALLOCATION_GATE},
    ]
    labels = build.metadata("labels", template.labels)
    annotations = {
        **build.metadata("annotations", template.annotations),
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
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {**labels, **job_labels(job, allocation.attempt)},
            "annotations": annotations,
            "ownerReferences": [job.owner_reference()],
        },
        "spec": pod_spec,
    }
    annotations[ANNOTATION_TEMPLATE] = content_hash(manifest)
    if allocation.driver_limits and containers > 1:
        build.notices.append(_divided(containers, ours))
    notices = (*ours.notices, *dict.fromkeys(build.notices))
    return JobPod(manifest, tuple(sorted(build.overridden)), notices)


def job_labels(job: SharedGPUJob, attempt: int) -> dict[str, str]:
    """Return the labels of the objects of an attempt."""
    return {
        LABEL_COMPONENT: COMPONENT_JOB,
        LABEL_JOB: job.metadata.name,
        LABEL_ATTEMPT: str(attempt),
        LABEL_PARTITION: job.spec.partition,
    }


def _divided(containers: int, ours: ContainerEnvironment) -> str:
    return (
        f"the GPU memory is divided equally between its {containers} containers that run at the "
        f"same time, because the driver limits each of them: {ours.variables[MEMORY_LIMIT]} MiB "
        "each, with their contexts; use one container if only one needs the GPU"
    )


def gpu_containers(template: PodTemplate) -> int:
    """Return how many containers of a job's Pod use its GPUs at the same time.

    All of them may use the GPUs. The template must be valid.
    """
    return concurrent_containers(template.spec.get("initContainers") or [], template.containers)


@dataclass(slots=True)
class PodSpecBuilder:
    """Converts a template to the spec of a Pod with an allocation; records what it changes."""

    allocation: JobAllocation
    ours: ContainerEnvironment
    claim: str
    """Name of its claim."""
    notices: list[str] = field(default_factory=list)
    overridden: set[str] = field(default_factory=set)

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
        every = [*(spec.get("initContainers") or ()), *spec["containers"]]
        variables = UserVariables(shared_variables(self.ours, every), self.ours.pytorch_fraction)
        if (policy := spec.get("restartPolicy")) and policy != "Never":
            self.notices.append(
                f"restartPolicy {policy} is replaced by Never: write spec.retry instead"
            )
        spec["restartPolicy"] = "Never"
        if spec.pop("nodeName", None):
            # With nodeName the Pod would bypass kube-scheduler, which reserves its claims.
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
                spec[kind] = [
                    self._container(c, variables, init=kind == "initContainers") for c in spec[kind]
                ]
        self.notices += variables.notices
        self.overridden |= variables.overridden
        use_claim(spec, self.claim)
        return spec

    def _container(
        self, container: dict[str, Any], variables: UserVariables, *, init: bool
    ) -> dict[str, Any]:
        sidecar = container.get("restartPolicy") == "Always"
        if (
            self.allocation.mode is SharingMode.MPS
            and (not init or sidecar)
            and (notice := add_pre_stop(container))
        ):
            self.notices.append(notice)
        if policy := restarts_itself(container, init=init):
            self.notices.append(
                f"container {container['name']} has restartPolicy {policy}, which is removed: "
                f"{RUNS_ONCE}"
            )
        if not sidecar or not init:
            container.pop("restartPolicy", None)
            container.pop("restartPolicyRules", None)
        if env := variables.kept(container):
            container["env"] = env
        else:
            container.pop("env", None)
        self._remove_gpus(container)
        # kubelet copies the end of the log, which contains CUDA's error, to the Pod's status:
        # https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
        return container

    def _remove_gpus(self, container: dict[str, Any]) -> None:
        """Remove requests for other GPUs, which the Pod would get in addition to its allocation."""
        resources: dict[str, Any] = container.get("resources") or {}
        removed: set[str] = set()
        for kind in ("requests", "limits"):
            amounts: dict[str, Any] = resources.get(kind) or {}
            removed |= {name for name in amounts if is_gpu_resource(name)}
            if removed & amounts.keys():
                resources[kind] = {k: v for k, v in amounts.items() if k not in removed}
        if removed:
            self.notices.append(
                f"container {container['name']} requests {', '.join(sorted(removed))}, which "
                "is removed: a job gets its GPU from the partition"
            )


def is_gpu_resource(name: str) -> bool:
    """Return whether a resource is a GPU: whole, shared (`nvidia.com/gpu.shared`), MIG or a slice.

    A limit for a slice would add another claim to the Pod (`manifests/limits`).
    """
    return name in {LIMIT_MEMORY, LIMIT_THREADS} or name.startswith(
        (GPU_RESOURCE, "nvidia.com/mig-")
    )
