"""The writes create, update and patch.

All functions are synchronous, so each call is atomic: preconditions hold until the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from partita.models.errors import text_path
from partita.validation.field_errors import FieldError
from partita.validation.kinds import UndecodableError
from partita_testcluster.apiserver.errors import APIError, bad_request, object_error
from partita_testcluster.apiserver.meta import generated_name, new_uid, now
from partita_testcluster.apiserver.patches import merge_patch, strategic_merge_patch
from partita_testcluster.apiserver.resources import ServedResource, Target
from partita_testcluster.apiserver.store import Record, Store

__all__ = ["WriteOptions", "Writer"]

_Obj = dict[str, Any]

# Metadata that is ignored on creation, and metadata that an update cannot change.
_NOT_ON_CREATE = frozenset({"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
                            "generation", "namespace", "resourceVersion",
                            "managedFields"})  # fmt: skip
_FIXED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "namespace",
          "deletionGracePeriodSeconds", "resourceVersion", "generateName", "selfLink",
          "managedFields")  # fmt: skip


@dataclass(slots=True)
class WriteOptions:
    """The query of a write.

    Attributes
    ----------
    validation
        Treatment of unknown fields: ``Strict``, ``Warn`` or ``Ignore``.
    warnings
        Warnings of the write, for the client.
    """

    dry_run: bool = False
    validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


class Writer:
    """Performs the writes to one store.

    Parameters
    ----------
    namespace
        Returns the record of a namespace.
    """

    def __init__(self, store: Store, namespace: Callable[[str], Record | None]) -> None:
        self._store = store
        self._namespace = namespace

    def create(self, target: Target, body: Any, options: WriteOptions) -> Record:
        """Create an object.

        Raises
        ------
        APIError
            400, 403, 404, 409 or 422, as in kube-apiserver.
        """
        obj = _decode(target, body)
        if obj["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        resource, given = target.resource, obj["metadata"]
        target = replace(target, name=_chosen_name(target, given))
        if resource.namespaced:
            self._check_namespace(target)
        obj["metadata"] = (
            {k: v for k, v in given.items() if k not in _NOT_ON_CREATE}
            | {"name": target.name, "uid": new_uid(), "creationTimestamp": now()}
            | ({"namespace": target.space} if resource.namespaced else {})
            | ({"generation": 1} if resource.generation else {})
        )
        if "status" in resource.subresources and resource.plural != "nodes":
            obj.pop("status", None)
        _complete(target, obj, None, options)
        if target.record is not None:
            raise target.error("AlreadyExists")
        return self._store.put(resource.collection, obj, dry_run=options.dry_run)

    def _check_namespace(self, target: Target) -> None:
        space = target.space
        if (record := self._namespace(space)) is None:
            raise object_error("NotFound", "", "namespaces", space)
        if record.deleting:
            ending = f"namespace {space} is being terminated"
            cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace",
                     "message": ending}  # fmt: skip
            why = f"unable to create new content: {ending}"
            raise target.error("Forbidden", why, causes=[cause])

    def update(self, target: Target, body: Any, options: WriteOptions) -> Record:
        """Replace an object or only its status.

        Raises
        ------
        APIError
            400, 404, 409 or 422, as in kube-apiserver.
        """
        obj = _decode(target, body)
        record = target.existing()
        if not obj["metadata"].get("resourceVersion") and not target.resource.unconditional:
            where = ("metadata", "resourceVersion")
            detail = "must be specified for an update"
            raise target.invalid([FieldError(where, "Invalid value", detail, 0)])
        return self._replace(target, record, obj, options)

    def patch(self, target: Target, kind: str, body: Any, options: WriteOptions) -> Record:
        """Patch an object.

        Parameters
        ----------
        kind
            ``merge-patch`` or ``strategic-merge-patch``.

        Raises
        ------
        APIError
            400, 404, 409 or 422, as in kube-apiserver.
        """
        record = target.existing()
        if not isinstance(body, dict):
            raise bad_request(f"a {kind} must be an object")
        if kind == "merge-patch":
            new = merge_patch(record.obj, body)
        else:
            new = strategic_merge_patch(record.obj, body, target.resource.rules.schema)
        return self._replace(target, record, _decode(target, new), options)

    def _replace(self, target: Target, record: Record, new: _Obj, options: WriteOptions) -> Record:
        """Store the parts of `new` that the endpoint may change."""
        resource, old = target.resource, record.obj
        _check_preconditions(target, record, new["metadata"])
        new = _carried_over(target, old, new)
        _complete(target, new, old, options)
        if resource.generation and _spec(resource, new) != _spec(resource, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if new == old:
            return record
        return self.write(resource, record, new, dry_run=options.dry_run)

    def write(
        self, resource: ServedResource, record: Record, obj: _Obj, *, dry_run: bool = False
    ) -> Record:
        """Store a new version without further checks, and remove it if its deletion is complete."""
        meta = obj["metadata"]
        gone = "deletionTimestamp" in meta and not (
            meta.get("finalizers")
            or meta.get("deletionGracePeriodSeconds")
            or resource.plural == "namespaces"
        )
        if gone and not dry_run:
            self._store.remove(resource.collection, record)
        return self._store.put(resource.collection, obj, dry_run=dry_run or gone)


def _decode(target: Target, body: Any) -> _Obj:
    """Return a shallow copy of `body` if it is an object of this kind, namespace and name."""
    resource, name = target.resource, target.name
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be an object")
    kind, version = body.get("kind"), body.get("apiVersion")
    if resource.rules.builtin:
        kind, version = kind or resource.kind, version or resource.api_version
    if kind != resource.kind and not resource.rules.builtin and version == resource.api_version:
        detail = f"must be {resource.kind}"
        raise target.invalid([FieldError(("kind",), "Invalid value", detail, kind)])
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f"the object provided ({version}, Kind={kind}) does not match the endpoint "
            f"({resource.api_version}, Kind={resource.kind})"
        )
    meta = {} if body.get("metadata") is None else body["metadata"]
    if not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    meta = {k: v for k, v in meta.items() if v not in (None, [], {})}
    if meta.get("namespace", target.space) != target.space and resource.namespaced:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if name and meta.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    return {**body, "apiVersion": version, "kind": kind, "metadata": meta}


def _chosen_name(target: Target, meta: _Obj) -> str:
    if meta.get("name"):
        return str(meta["name"])
    if meta.get("generateName"):
        return generated_name(str(meta["generateName"]))
    detail = "name or generateName is required"
    raise target.invalid([FieldError(("metadata", "name"), "Required value", detail)])


def _check_preconditions(target: Target, record: Record, meta: _Obj) -> None:
    if (uid := meta.get("uid")) and uid != record.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
        raise target.error("Conflict", why)
    if (version := meta.get("resourceVersion")) and version != str(record.rv):
        raise target.error("Conflict")


def _carried_over(target: Target, old: _Obj, new: _Obj) -> _Obj:
    """Return `new` with the parts that this endpoint does not write copied from `old`."""
    meta = before = old["metadata"]
    result, status = old, new
    if target.subresource != "status":
        meta = {k: v for k, v in new["metadata"].items() if k not in _FIXED}
        meta |= {k: before[k] for k in _FIXED if k in before}
        result, status = new, old
    if "status" in target.resource.subresources:
        result = {k: v for k, v in result.items() if k != "status"}
        result |= {"status": status["status"]} if "status" in status else {}
    return result | {"metadata": dict(meta)}


def _spec(resource: ServedResource, obj: _Obj) -> _Obj:
    """Return the parts of an object whose changes increase the generation."""
    left_out = {"metadata"} | ({"status"} & resource.subresources)
    return {k: v for k, v in obj.items() if k not in left_out}


def _complete(target: Target, obj: _Obj, old: _Obj | None, options: WriteOptions) -> None:
    """Prune, default and validate an object."""
    resource, rules = target.resource, target.resource.rules
    unknown = [f'unknown field "{text_path(path)}"' for path in rules.schema.prune(obj)]
    if unknown and options.validation == "Strict":
        raise _undecodable(resource, unknown)
    if options.validation == "Warn":
        options.warnings += unknown
    try:
        found = rules.complete(obj, old)
    except UndecodableError as e:
        raise _undecodable(resource, list(map(str, e.problems))) from e
    if found:
        raise target.invalid(found)


def _undecodable(resource: ServedResource, problems: list[str]) -> APIError:
    """Return a 400 error for a body with values or fields that Kubernetes cannot decode."""
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a '
        f"{resource.kind}: strict decoding error: {', '.join(problems)}"
    )
