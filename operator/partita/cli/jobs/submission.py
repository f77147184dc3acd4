"""Builds a SharedGPUJob from a command, or from a Pod or Job that requests GPUs. Pure functions.

The request `nvidia.com/gpu` is removed. Amounts of Partita and of other systems that share GPUs
become those of the job (`partita.cli.jobs.asked_amounts`). What others have written into a Pod that
was read from a cluster is left out: its node, its scheduler, what admission has added.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from partita.cli.jobs.asked_amounts import is_of_a_gpu, read_amounts
from partita.constants import GROUP, POD_SETTINGS, VERSION
from partita.models.errors import text_path
from partita.models.quantities import format_memory
from partita.models.template_name import TemplateName
from partita.pods.own_claims import is_own_claim
from partita.validation.dry_run import type_errors

__all__ = ["UnsuitableError", "of_command", "of_manifest", "shared_job"]

Json = dict[str, Any]

_GENERATED_LABELS: Final = ("controller-uid", "gpu-memory", "job-name", "pod-template-hash")
"""Names of labels and annotations; `gpu-memory` is KAI's, which becomes that of the job."""
_GENERATED_PREFIXES: Final = (
    *("batch.kubernetes.io/", "kubectl.kubernetes.io/", "hami.io/", f"{GROUP}/"),
)
_FOREIGN_SETTINGS: Final = ("nvidia.com/", "gpu-fraction", "volcano.sh/vgpu-")
"""Beginnings of annotations by which HAMi, KAI and Volcano choose and divide GPUs."""
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 - a volume's name
_SET_BY_OTHERS: Final = (
    *("activeDeadlineSeconds", "ephemeralContainers", "nodeName", "overhead", "preemptionPolicy"),
    *("priority", "restartPolicy", "schedulerName", "schedulingGates", "serviceAccount"),
)
"""Fields that the job has otherwise, that controllers and admission write, or that only a Pod that
exists may have. A template with `priority` is refused if its PriorityClass has another value."""
_MAX_RETRIES: Final = 100


class UnsuitableError(Exception):
    """The object cannot become a SharedGPUJob; the message contains what to change."""


def of_command(
    name: str, image: str, command: Sequence[str], env: Mapping[str, str]
) -> tuple[Json, Json]:
    """Return metadata and spec of a job that runs one command.

    Parameters
    ----------
    command
        Program and arguments; if empty, the defaults of the image are used.
    """
    container: Json = {"name": name, "image": image}
    if command:
        container["command"] = list(command)
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return {"name": name}, {"template": {"spec": {"containers": [container]}}}


def of_manifest(body: Json) -> tuple[Json, Json, list[str]]:
    """Return metadata and spec of a job with the containers of a Pod or Job, and notes for users.

    Raises
    ------
    UnsuitableError
        The object is of another kind, has no containers, or runs more than one Pod.
    """
    kind = body.get("kind")
    if kind not in ("Pod", "Job"):
        it = f"it is a {kind}" if isinstance(kind, str) and kind else "it has no kind"
        raise UnsuitableError(
            f"{it}: write a Pod or a Job (for a Deployment, its template as a Pod)"
        )
    body = _without_nulls({key: body.get(key) for key in ("kind", "metadata", "spec")})
    for error in type_errors("v1" if kind == "Pod" else "batch/v1", body):
        raise UnsuitableError(f"{text_path(error.path)}: {error.message}")
    template, spec = body, {}
    if kind == "Job":
        spec = _of_job(body.get("spec") or {})
        template = (body.get("spec") or {}).get("template") or {}
    notes: list[str] = []
    pod = dict(template.get("spec") or {})
    if not pod.get("containers"):
        raise UnsuitableError(f"the {kind} has no containers")
    if pod.get("restartPolicy", "Always") != "Never":
        notes.append(
            "a failed Pod is not restarted in place: set spec.retry to start the job again"
        )
    deadline = pod.get("activeDeadlineSeconds")
    if deadline is not None:
        spec.setdefault("activeDeadlineSeconds", deadline)
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    try:
        asked, more = read_amounts(pod, annotations)
    except ValueError as error:
        raise UnsuitableError(str(error)) from None
    spec |= asked | _of_claims(pod, notes) | _settings(annotations)
    notes += [*more, *_left_out(pod, annotations)]
    wanted: Json = {"spec": _cleaned(pod)}
    meta = _metadata(template.get("metadata") or {})
    if meta:
        wanted["metadata"] = meta
    own = body.get("metadata") or {}
    metadata = {key: own[key] for key in ("name", "namespace") if own.get(key)}
    return metadata, {**spec, "template": wanted}, notes


def shared_job(metadata: Json, spec: Json, wishes: Mapping[str, Any]) -> Json:
    """Build the job; options of the command line override fields of the spec."""
    asked = {key: value for key, value in wishes.items() if value is not None}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "SharedGPUJob",
        "metadata": metadata,
        "spec": {**asked, **{k: v for k, v in spec.items() if k not in asked}},
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _of_job(job: Json) -> Json:
    for field in ("parallelism", "completions"):
        if (job.get(field) or 1) != 1:
            raise UnsuitableError(
                f"its {field} is {job[field]}: a SharedGPUJob runs one Pod, submit one for each"
            )
    spec: Json = {}
    for field in ("activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if job.get(field) is not None:
            spec[field] = job[field]
    if job.get("backoffLimit") is not None:
        spec["retry"] = {"limit": min(job["backoffLimit"], _MAX_RETRIES)}
    if job.get("suspend"):
        spec["suspend"] = True
    return spec


def _settings(annotations: Mapping[str, Any]) -> Json:
    """Return the fields that Partita's annotations of a Pod set."""
    found = {to: annotations[name] for name, to in POD_SETTINGS.items() if name in annotations}
    numbers = {"processes", "threadPercent"}
    return {
        field: int(text) if field in numbers and str(text).isdecimal() else text
        for field, text in found.items()
    }


def _of_claims(pod: Json, notes: list[str]) -> Json:
    """Remove Partita's claims from a Pod; return the fields that say the same.

    Other claims stay: only the cluster knows the device classes of their templates.
    """
    fields: Json = {}
    removed, kept = set(), []
    for entry in pod.get("resourceClaims") or ():
        template = entry.get("resourceClaimTemplateName") or ""
        if name := TemplateName.parse(template):
            fields["gpuMemory"] = format_memory(name.memory)
            fields |= {"threadPercent": name.threads} if name.threads else {}
            fields |= {"partition": name.partition} if name.partition else {}
        elif not is_own_claim(entry.get("resourceClaimName") or ""):
            notes.append(
                f"its claim {entry['name']} stays: if it is one of a class *.gpu.partita.dev, "
                "remove it and write its amount as --gpu-memory"
            )
            kept.append(entry)
            continue
        removed.add(entry["name"])
    if removed:
        pod["resourceClaims"] = kept
        for kind in ("containers", "initContainers"):
            pod[kind] = [_without_claims(container, removed) for container in pod.get(kind) or ()]
    return fields


def _without_claims(container: Json, removed: Container[str]) -> Json:
    resources = dict(container.get("resources") or {})
    resources["claims"] = [c for c in resources.get("claims") or () if c["name"] not in removed]
    return {**container, "resources": resources}


def _left_out(pod: Json, annotations: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what is left out and could matter."""
    scheduler = pod.get("schedulerName") or "default-scheduler"
    if scheduler != "default-scheduler":
        yield f"schedulerName {scheduler} is left out: kube-scheduler starts the Pods of jobs"
    for gate in pod.get("schedulingGates") or ():
        if not gate["name"].startswith(f"{GROUP}/"):
            yield f"scheduling gate {gate['name']} is left out: its controller adds it again"
    for name in filter(_is_foreign, annotations):
        yield f"annotation {name} is left out: it chooses or divides GPUs of another system"


def _is_foreign(name: str) -> bool:
    return name.startswith(_FOREIGN_SETTINGS)


def _cleaned(pod: Json) -> Json:
    """Remove fields that the API server has set, and fields that Partita will set."""
    pod = {key: value for key, value in pod.items() if key not in _SET_BY_OTHERS}
    volumes = [
        volume
        for volume in pod.get("volumes") or ()
        if not str(volume.get("name", "")).startswith(_TOKEN_VOLUME)
    ]
    if "volumes" in pod:
        pod["volumes"] = volumes
    for key in ("containers", "initContainers"):
        if key in pod:
            pod[key] = [_cleaned_container(container) for container in pod[key] or ()]
    return {key: value for key, value in pod.items() if value != []}


def _cleaned_container(container: Json) -> Json:
    container = dict(container)
    resources = dict(container.get("resources") or {})  # with claims of devices of other drivers
    for key in ("limits", "requests"):
        resources[key] = {
            resource: amount
            for resource, amount in (resources.get(key) or {}).items()
            if not is_of_a_gpu(resource)
        }
    container["resources"] = {key: found for key, found in resources.items() if found}
    mounts = container.get("volumeMounts") or ()
    container["volumeMounts"] = [
        mount for mount in mounts if not str(mount.get("name", "")).startswith(_TOKEN_VOLUME)
    ]
    return {key: value for key, value in container.items() if value not in ({}, [])}


def _metadata(meta: Json) -> Json:
    kept = {
        key: {
            name: value
            for name, value in (meta.get(key) or {}).items()
            if name not in _GENERATED_LABELS
            and not name.startswith(_GENERATED_PREFIXES)
            and not (key == "annotations" and _is_foreign(name))
        }
        for key in ("labels", "annotations")
    }
    return {key: values for key, values in kept.items() if values}
