"""Checks of SharedGPUJobs against their templates and against the partitions in the files."""

from collections.abc import Iterator

from partita.claims.pod_claims import second_claim
from partita.models import GPUPartition, SharedGPUJob, SharingMode
from partita.models.errors import text_path
from partita.models.sharing import Burst
from partita.models.template import PodTemplate
from partita.pods.containers import restarts_itself
from partita.pods.job_pod import RUNS_ONCE, gpu_containers, is_gpu_resource
from partita.pods.template_check import template_problems
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve
from partita.validation.dry_run import pod_errors
from partita.validation.field_errors import Path
from partita.validation.manifest_objects import (
    Finding,
    KnownObjects,
    ManifestObject,
    mappings,
    text_of,
)
from partita.validation.pod_specs import foreign_scheduler

__all__ = ["job_findings"]


def job_findings(
    found: ManifestObject, job: SharedGPUJob, known: KnownObjects
) -> Iterator[Finding]:
    """Yield what is wrong with a job's template, and with the job for its partition."""
    template = job.spec.template.unpack()
    problems = template_problems(template)
    # Of the template the operator takes all but how Pods are restarted.
    errors = [] if problems else pod_errors(template.spec | {"restartPolicy": "Never"})
    for error in errors:
        yield found.finding(("spec", "template", *error.path), error.message)
    for path, said in () if problems or errors else _adjusted(template, job.spec.processes):
        yield found.finding(("spec", "template", "spec", *path), said, warning=True)
    for path, said in _second_claims(template, job.metadata.namespace, known):
        yield found.finding(("spec", "template", "spec", *path), said)
    for path, said in problems:
        yield found.finding(("spec", *path), said)
    yield from _partition_findings(found, job, known, readable=not (problems or errors))


def _partition_findings(
    found: ManifestObject, job: SharedGPUJob, known: KnownObjects, *, readable: bool
) -> Iterator[Finding]:
    """Yield what does not agree with the partitions in the files."""
    name = job.spec.partition
    partitions = known.partitions.get(name)
    if not partitions:
        if known.partitions:
            yield found.finding(("spec", "partition"), known.absent(name), warning=True)
        return
    if readable:
        # Overlays may contain several partitions of one name. It is enough if one accepts the job.
        refusals = [_refusal(job, partition) for partition in partitions]
        if all(refusals) and refusals[0] is not None:
            yield found.finding(*refusals[0])
    sharing = [p.spec.sharing for p in partitions]
    never = all(s.mode is SharingMode.MPS and s.burst is Burst.NEVER for s in sharing)
    if job.spec.gpu_memory_limit and never:
        said = (
            f"GPUPartition {name} has sharing.burst Never, so this has no effect: remove it, or "
            "set sharing.burst to Spare there"
        )
        yield found.finding(("spec", "gpuMemoryLimit"), said, warning=True)
    labels = known.namespaces.get(job.metadata.namespace)
    if labels is not None and not any(
        p.spec.allowed_namespaces is None or p.spec.allowed_namespaces.matches(labels)
        for p in partitions
    ):
        said = (
            f"GPUPartition {name} does not serve namespace {job.metadata.namespace}: label the "
            "namespace as its spec.allowedNamespaces asks"
        )
        yield found.finding(("spec", "partition"), said, warning=True)


def _adjusted(template: PodTemplate, processes: int) -> Iterator[tuple[Path, str]]:
    """Yield what the operator removes, and what else keeps a job from its rules."""
    if processes < (users := len(template.containers)):
        said = (
            f"{users} containers may use the GPU at the same time, and spec.processes is "
            f"{processes}: MPS terminates the newest process above this number. Write the number "
            "of all their processes, and containers that do not use the GPU as init containers "
            "with restartPolicy Always"
        )
        yield ("containers",), said
    if said := foreign_scheduler(template.spec):
        yield ("schedulerName",), said
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(template.spec.get(kind) or ()):
            for part in ("requests", "limits"):
                amounts = (container.get("resources") or {}).get(part) or ()
                for name in filter(is_gpu_resource, amounts):
                    said = (
                        "the operator removes this: a job gets its GPU from the partition. Write "
                        f"how much GPU memory the job needs in spec.gpuMemory instead of {name}"
                    )
                    yield (kind, index, "resources", part, name), said
            if restarts_itself(container, init=kind == "initContainers"):
                yield (kind, index, "restartPolicy"), f"the operator removes this: {RUNS_ONCE}"


def _second_claims(
    template: PodTemplate, namespace: str, known: KnownObjects
) -> Iterator[tuple[Path, str]]:
    """Yield the claims whose templates in the files are of a class of Partita."""
    for index, entry in mappings(template.spec.get("resourceClaims")):
        named = text_of(entry.get("resourceClaimTemplateName"))
        claim = known.claim("ResourceClaimTemplate", named, namespace)
        if claim is not None:
            yield ("resourceClaims", index), second_claim(claim.view)


def _refusal(job: SharedGPUJob, partition: GPUPartition) -> tuple[Path, str] | None:
    """Return why a partition can never run a job, independent of its GPUs."""
    resolved = resolve(request_of_job(job), partition, largest=Largest())
    if not isinstance(resolved, WaitingReason):
        return None
    spec = job.spec
    path: Path
    if spec.gpu_memory_limit and partition.spec.sharing.mode is not SharingMode.MPS:
        path = ("spec", "gpuMemoryLimit")
    elif spec.gpus > 1 and partition.spec.sharing.mode is not SharingMode.EXCLUSIVE:
        path = ("spec", "gpus")
    elif spec.slice is not None and partition.spec.slice(spec.slice) is None:
        path = ("spec", "slice")
    elif gpu_containers(spec.template.unpack()) > partition.spec.sharing.max_jobs_per_gpu:
        path = ("spec", "template", "spec", "containers")
    else:
        path = ("spec", "gpuMemory")
    return path, resolved.message.removeprefix(f"{text_path(path[1:])}: ")
