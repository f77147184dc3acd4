"""Subresources with a kind of their own: an object's `Scale`, a Pod's `Binding`."""

from __future__ import annotations

from typing import Any

from partita.embedded.apply import Manager, record_update
from partita.embedded.errors import FieldError, bad_request, conflict, invalid
from partita.embedded.meta import now
from partita.embedded.patches import json_patch, merge_patch
from partita.embedded.resources import Resource, Target
from partita.embedded.writes import WriteOptions, Writer

__all__ = ["bind", "patch_scale", "replace_scale", "scale_of"]

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def _get(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for part in path.lstrip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def scale_of(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object's `Scale`."""
    status: dict[str, Any] = {"replicas": _get(obj, resource.scale["statusReplicasPath"]) or 0}
    if path := resource.scale.get("labelSelectorPath"):
        status["selector"] = _get(obj, path) or ""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: obj["metadata"][k] for k in _META if k in obj["metadata"]},
        "spec": {"replicas": _get(obj, resource.scale["specReplicasPath"]) or 0},
        "status": status,
    }


def patch_scale(resource: Resource, obj: dict[str, Any], kind: str, patch: Any) -> Any:
    """Return an object's `Scale` with a patch applied.

    Raises
    ------
    APIError
        400 for a kind of patch a `Scale` does not take.
    """
    scale = scale_of(resource, obj)
    if kind == "json-patch":
        return json_patch(scale, patch)
    if kind == "apply-patch":
        raise bad_request("server-side apply of a Scale is not supported here")
    return merge_patch(scale, patch)


def replace_scale(resource: Resource, obj: dict[str, Any], scale: Any) -> dict[str, Any]:
    """Return the object with the replicas of a `Scale`; a stale one keeps its resourceVersion.

    Raises
    ------
    APIError
        422 where the replicas are no count.
    """
    replicas = (scale or {}).get("spec", {}).get("replicas", 0)
    if type(replicas) is not int or replicas < 0:
        problem = FieldError(("spec", "replicas"), "Invalid value",
                             "should be a non-negative integer", replicas)  # fmt: skip
        raise invalid("autoscaling", "Scale", obj["metadata"]["name"], [problem])
    if version := scale.get("metadata", {}).get("resourceVersion"):
        obj["metadata"]["resourceVersion"] = version
    *parents, last = resource.scale["specReplicasPath"].lstrip(".").split(".")
    node = obj
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = replicas
    return obj


def bind(writer: Writer, target: Target, binding: Any, options: WriteOptions) -> None:
    """Bind a Pod to a node, as a scheduler does.

    Raises
    ------
    APIError
        404, 409 where the Pod is bound or being deleted, 422 where the binding names no node.
    """
    record, name = target.existing(), target.name
    node = ((binding or {}).get("target") or {}).get("name")
    if not node:
        problem = FieldError(("target", "name"), "Required value")
        raise invalid("", "Binding", name, [problem])
    pod = record.obj
    why = ""
    if record.deleting:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif bound := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{bound}"'
    meta = binding.get("metadata") or {}
    if not why and meta.get("uid", record.uid) != record.uid:
        why = f"Precondition failed: UID in precondition: {meta['uid']}"
    if why:
        raise conflict("", "pods/binding", name, why)
    pod["spec"]["nodeName"] = node
    conditions = [c for c in pod["status"].get("conditions", ()) if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
    pod["status"]["conditions"] = [*conditions, scheduled]
    manager = Manager(options.manager, "Update", target.resource.api_version, "binding")
    record_update(target.resource.schema, record.obj, pod, manager, now())
    writer.store(target.resource, pod, dry_run=options.dry_run)
