"""Subresources with their own kind: an object's `Scale`, a Pod's `Binding`."""

from __future__ import annotations

from typing import Any

from partita.validation.field_errors import FieldError
from partita_testcluster.apiserver.errors import invalid
from partita_testcluster.apiserver.meta import dig, now
from partita_testcluster.apiserver.patches import merge_patch
from partita_testcluster.apiserver.resources import ServedResource, Target
from partita_testcluster.apiserver.store import Store
from partita_testcluster.apiserver.writes import WriteOptions

__all__ = ["bind", "scale_of", "scaled"]

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(resource: ServedResource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object's `Scale`."""
    paths = resource.scale
    status = {"replicas": dig(obj, paths["statusReplicasPath"]) or 0}
    if "labelSelectorPath" in paths:
        status["selector"] = _selector_text(dig(obj, paths["labelSelectorPath"]) or "")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: obj["metadata"][k] for k in _META if k in obj["metadata"]},
        "spec": {"replicas": dig(obj, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    """Return the text of a selector: a custom resource has a text, a built-in kind an object."""
    if isinstance(selector, str):
        return selector
    return ",".join(f"{k}={v}" for k, v in sorted((selector.get("matchLabels") or {}).items()))


def scaled(resource: ServedResource, obj: dict[str, Any], kind: str, body: Any) -> dict[str, Any]:
    """Return the object with the replicas and, as precondition, the resourceVersion of a `Scale`.

    Parameters
    ----------
    kind
        The patch language of `body`; empty if `body` is the `Scale` itself.

    Raises
    ------
    APIError
        422 if the replicas are not a non-negative integer.
    """
    scale = merge_patch(scale_of(resource, obj), body) if kind else body
    replicas = dig(scale, "spec.replicas")
    if type(replicas) is not int or replicas < 0:
        detail = "should be a non-negative integer"
        problem = FieldError(("spec", "replicas"), "Invalid value", detail, replicas)
        raise invalid("autoscaling", "Scale", obj["metadata"]["name"], [problem])
    if version := dig(scale, "metadata.resourceVersion"):
        obj["metadata"]["resourceVersion"] = version
    *parents, last = resource.scale["specReplicasPath"].lstrip(".").split(".")
    node = obj
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = replicas
    return obj


def bind(store: Store, target: Target, binding: Any, options: WriteOptions) -> None:
    """Bind a Pod to a node, as a scheduler does.

    Raises
    ------
    APIError
        404, 409 if the Pod is bound or being deleted, 422 if the binding contains no node.
    """
    record, name = target.existing(), target.name
    pod, resource = record.obj, target.resource
    if not (node := dig(binding, "target.name")):
        problem = FieldError(("target", "name"), "Required value")
        raise invalid("", "Binding", name, [problem])
    why = ""
    if record.deleting:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif bound := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{bound}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    elif (uid := dig(binding, "metadata.uid") or record.uid) != record.uid:
        why = f"Precondition failed: UID in precondition: {uid}"
    if why:
        raise target.error("Conflict", why)
    pod["spec"]["nodeName"] = node
    conditions = [c for c in pod["status"].get("conditions", ()) if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
    pod["status"]["conditions"] = [*conditions, scheduled]
    store.put(resource.collection, pod, dry_run=options.dry_run)
