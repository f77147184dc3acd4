"""Builds a SharedGPUJob from a command, or from a Pod or Job that requests GPUs. Pure functions.

The request `nvidia.com/gpu` is removed. HAMi's requests `nvidia.com/gpumem` (MiB) and
`nvidia.com/gpucores` (percent) become the request of the slice:
https://project-hami.io/docs/userguide/configure/#container-configs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from partita.constants import GROUP, VERSION
from partita.validation.dry_run import type_errors
from partita.validation.field_errors import text_path

__all__ = ["UnsuitableError", "of_command", "of_manifest", "shared_job"]

Json = dict[str, Any]

_GPUS: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
"""Resources of NVIDIA's plugin; `.shared` if time slicing is configured with renamed resources:
https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus."""
_HAMI_MEMORY: Final = "nvidia.com/gpumem"
_HAMI_CORES: Final = "nvidia.com/gpucores"
_FOREIGN: Final = ("nvidia.com/", "gpu.partita.dev/")
"""Resources that the operator requests itself, or that have no effect with Partita."""
_GENERATED_LABELS: Final = ("controller-uid", "job-name", "pod-template-hash")
_GENERATED_PREFIXES: Final = ("batch.kubernetes.io/", "kubectl.kubernetes.io/")
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 - a volume's name
_SET_BY_OTHERS: Final = ("nodeName", "restartPolicy", "activeDeadlineSeconds")
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
        raise UnsuitableError(
            f"it is a {kind}: write a Pod or a Job (for a Deployment, its template as a Pod)"
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
    spec |= _needs(pod["containers"], notes)
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


def _needs(containers: Sequence[Json], notes: list[str]) -> Json:
    """Return the fields of the spec that replace the containers' requests for GPUs."""
    asked: dict[str, int] = {}
    for container in containers:
        resources = container.get("resources") or {}
        both = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for resource, amount in both.items():
            if resource.startswith(_FOREIGN):
                asked[resource] = asked.get(resource, 0) + _number(resource, amount)
    needs: Json = {}
    gpus = sum(asked.pop(resource, 0) for resource in _GPUS)
    if gpus > 1:
        needs["gpus"] = gpus
    if memory := asked.pop(_HAMI_MEMORY, 0):
        needs["gpuMemory"] = f"{memory}Mi"
    if cores := asked.pop(_HAMI_CORES, 0):
        needs["threadPercent"] = min(cores, 100)
    notes += [
        f"{resource}: {amount} is left out, write its amount of memory as --gpu-memory"
        for resource, amount in asked.items()
    ]
    return needs


def _number(resource: str, amount: Any) -> int:
    try:
        return int(str(amount))
    except ValueError:
        raise UnsuitableError(f"{resource} is {amount!r}: write a whole number") from None


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
            if not resource.startswith(_FOREIGN)
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
            if name not in _GENERATED_LABELS and not name.startswith(_GENERATED_PREFIXES)
        }
        for key in ("labels", "annotations")
    }
    return {key: values for key, values in kept.items() if values}
