"""What create, update, patch and apply mean.

Everything is synchronous, so each call is one atomic step: preconditions hold until the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from partita.embedded import errors
from partita.embedded.apply import Manager, apply_config, record_update
from partita.embedded.errors import APIError, FieldError, text_path
from partita.embedded.meta import check_metadata, generated_name, new_uid, now
from partita.embedded.patches import json_patch, merge_patch, strategic_merge_patch
from partita.embedded.resources import Resource, Target
from partita.embedded.store import Record, Store
from partita.embedded.validation import validate

__all__ = ["WriteOptions", "Writer"]

_GENERATE_TRIES = 8
# Metadata that only the server sets.
_NOT_ON_CREATE = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                  "resourceVersion")  # fmt: skip
_FIXED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "namespace",
          "deletionGracePeriodSeconds", "resourceVersion", "generateName")  # fmt: skip


@dataclass(slots=True)
class WriteOptions:
    """The query of a write.

    Attributes
    ----------
    manager
        Who owns the fields that are written.
    validation
        Of unknown fields: ``Strict``, ``Warn`` or ``Ignore``.
    warnings
        Filled by the write: what the client should be told beside its result.
    """

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


class Writer:
    """The writes to one store.

    Parameters
    ----------
    namespace
        Returns the record of a namespace.
    """

    def __init__(self, store: Store, namespace: Callable[[str], Record | None]) -> None:
        self._store = store
        self._namespace = namespace

    # -- create ---------------------------------------------------------------------------

    def create(self, target: Target, body: Any, options: WriteOptions) -> Record:
        """Create an object.

        Raises
        ------
        APIError
            400, 403, 404, 409 or 422, as the API server answers.
        """
        obj = _decode(target, body)
        if obj["metadata"].get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        obj["metadata"].pop("managedFields", None)
        manager = Manager(options.manager, "Update", target.resource.api_version)
        return self._create(target, obj, options, manager)

    def _create(
        self,
        target: Target,
        obj: dict[str, Any],
        options: WriteOptions,
        manager: Manager | None,
    ) -> Record:
        resource, meta = target.resource, obj["metadata"]
        target = replace(target, name=_chosen_name(target, meta))
        meta["name"] = target.name
        self._check_namespace(target)
        for key in _NOT_ON_CREATE:
            meta.pop(key, None)
        if resource.namespaced:
            meta["namespace"] = target.space
        else:
            meta.pop("namespace", None)
        meta["uid"] = new_uid()
        meta["creationTimestamp"] = now()
        if resource.generation:
            meta["generation"] = 1
        if "status" in resource.subresources and resource.plural != "nodes":
            obj.pop("status", None)
        _complete(target, obj, None, options)
        if target.record is not None:
            raise errors.already_exists(resource.group, resource.plural, target.name)
        if manager is not None:
            record_update(resource.schema, {}, obj, manager, now())
        return self.store(resource, obj, dry_run=options.dry_run)

    def _check_namespace(self, target: Target) -> None:
        if not target.resource.namespaced:
            return
        record = self._namespace(target.space)
        if record is None:
            raise errors.not_found("", "namespaces", target.space)
        if record.deleting:
            why = (
                f"unable to create new content in namespace {target.space} because it is being "
                "terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {target.space} is being terminated",
                "field": "metadata.namespace",
            }
            resource = target.resource
            raise errors.forbidden(
                resource.group, resource.plural, target.name, why, causes=[cause]
            )

    # -- update ---------------------------------------------------------------------------

    def update(self, target: Target, body: Any, options: WriteOptions) -> Record:
        """Replace an object, or only its status.

        Raises
        ------
        APIError
            400, 404, 409 or 422, as the API server answers.
        """
        obj = _decode(target, body)
        record = target.existing()
        if not obj["metadata"].get("resourceVersion") and not target.resource.unconditional:
            where = ("metadata", "resourceVersion")
            detail = "must be specified for an update"
            raise target.invalid([FieldError(where, "Invalid value", detail, 0)])
        return self._replace(target, record, obj, options)

    def patch(
        self, target: Target, kind: str, body: Any, options: WriteOptions
    ) -> tuple[Record, bool]:
        """Patch an object; return it, and whether it was created (by an apply).

        Parameters
        ----------
        kind
            ``json-patch``, ``merge-patch``, ``strategic-merge-patch`` or ``apply-patch``.

        Raises
        ------
        APIError
            400, 404, 409 or 422, as the API server answers.
        """
        if kind == "apply-patch":
            return self._apply(target, body, options)
        record = target.existing()
        if kind == "json-patch":
            new = json_patch(record.obj, body)
        elif not isinstance(body, dict):
            raise errors.bad_request(f"a {kind} must be an object")
        elif kind == "merge-patch":
            new = merge_patch(record.obj, body)
        else:
            new = strategic_merge_patch(record.obj, body, target.resource.schema)
        return self._replace(target, record, _decode(target, new), options), False

    def _apply(self, target: Target, body: Any, options: WriteOptions) -> tuple[Record, bool]:
        resource, record = target.resource, target.record
        config = _decode(target, body)
        if "managedFields" in config["metadata"]:
            raise errors.bad_request("metadata.managedFields must be nil")
        if unknown := _unknown_fields(resource, config):
            raise _undecodable(resource, f"strict decoding error: {', '.join(unknown)}")
        manager = Manager(options.manager, "Apply", resource.api_version, target.subresource)
        if target.subresource:
            kept = {k: v for k, v in config["metadata"].items() if k == "resourceVersion"}
            config = {"metadata": kept} | {
                k: v for k, v in config.items() if k == target.subresource
            }
        elif "status" in resource.subresources:
            config.pop("status", None)
        if record is None:
            if target.subresource:
                target.existing()  # raises
            return self._apply_new(target, config, manager, options), True
        _check_preconditions(target, record, config["metadata"])
        new = apply_config(resource.schema, record.obj, config, manager, now(), force=options.force)
        return self._replace(target, record, new, options, applied=True), False

    def _apply_new(
        self, target: Target, config: dict[str, Any], manager: Manager, options: WriteOptions
    ) -> Record:
        if config["metadata"].get("uid") or config["metadata"].get("resourceVersion"):
            raise target.conflict()
        new = apply_config(
            target.resource.schema, {"metadata": {}}, config, manager, now(), force=True
        )
        new |= {k: config[k] for k in ("apiVersion", "kind")}
        new["metadata"]["name"] = target.name
        return self._create(target, new, options, None)

    def _replace(
        self,
        target: Target,
        record: Record,
        new: dict[str, Any],
        options: WriteOptions,
        *,
        applied: bool = False,
    ) -> Record:
        """Store `new`, as far as the endpoint may change it."""
        resource, old = target.resource, record.obj
        _check_preconditions(target, record, new["metadata"])
        new = _carried_over(target, old, new)
        _complete(target, new, old, options)
        if resource.generation and _spec(resource, new) != _spec(resource, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not applied:
            manager = Manager(options.manager, "Update", resource.api_version, target.subresource)
            record_update(resource.schema, old, new, manager, now())
        if new == old:
            return record
        return self.write(resource, record, new, dry_run=options.dry_run)

    # -- storing --------------------------------------------------------------------------

    def write(
        self, resource: Resource, record: Record, obj: dict[str, Any], *, dry_run: bool = False
    ) -> Record:
        """Store a new version without further checks; the last one of a deletion removes it."""
        meta = obj["metadata"]
        gone = "deletionTimestamp" in meta and not (
            meta.get("finalizers")
            or meta.get("deletionGracePeriodSeconds")
            or resource.plural == "namespaces"
        )
        if gone and not dry_run:
            self._store.remove(resource.collection, record)
        return self.store(resource, obj, dry_run=dry_run or gone)

    def store(self, resource: Resource, obj: dict[str, Any], *, dry_run: bool) -> Record:
        """Store an object; on a dry run only return what would have been stored."""
        if not dry_run:
            return self._store.put(resource.collection, obj)
        meta = obj["metadata"]
        return Record(
            namespace=meta.get("namespace", ""), name=meta["name"], uid=meta["uid"],
            rv=self._store.rv, raw=orjson.dumps(obj), labels=meta.get("labels") or {},
            selectable={}, owners=(), deleting=False,
        )  # fmt: skip


def _decode(target: Target, body: Any) -> dict[str, Any]:
    """Return a copy of `body`'s top level if it is an object of this kind and place."""
    resource, name = target.resource, target.name
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request must be an object")
    kind, version = body.get("kind"), body.get("apiVersion")
    if not resource.custom:
        kind, version = kind or resource.kind, version or resource.api_version
    if kind != resource.kind and resource.custom and version == resource.api_version:
        detail = f"must be {resource.kind}"
        raise target.invalid([FieldError(("kind",), "Invalid value", detail, kind)])
    if kind != resource.kind or version != resource.api_version:
        raise errors.bad_request(
            f"the object provided ({version}, Kind={kind}) does not match the endpoint "
            f"({resource.api_version}, Kind={resource.kind})"
        )
    meta = body.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        raise errors.bad_request("metadata must be an object")
    meta = {k: v for k, v in (meta or {}).items() if v is not None}
    if meta.get("namespace", target.space) != target.space and resource.namespaced:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if name and meta.setdefault("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    return {**body, "apiVersion": version, "kind": kind, "metadata": meta}


def _chosen_name(target: Target, meta: dict[str, Any]) -> str:
    if meta.get("name"):
        return str(meta["name"])
    if not meta.get("generateName"):
        detail = "name or generateName is required"
        raise target.invalid([FieldError(("metadata", "name"), "Required value", detail)])
    for _ in range(_GENERATE_TRIES):
        name = generated_name(str(meta["generateName"]))
        if target.resource.collection.get(target.space, name) is None:
            break
    return name


def _check_preconditions(target: Target, record: Record, meta: dict[str, Any]) -> None:
    if (uid := meta.get("uid")) and uid != record.uid:
        raise target.conflict(
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {record.uid}"
        )
    version = meta.get("resourceVersion")
    if version and version != str(record.rv):
        raise target.conflict()


def _carried_over(target: Target, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return `new` with what this endpoint does not write taken from `old`."""
    before = old["metadata"]
    if target.subresource == "status":
        given = new["metadata"].get("managedFields")
        meta = before if given is None else before | {"managedFields": given}
        status = {"status": new["status"]} if "status" in new else {}
        return {k: v for k, v in old.items() if k != "status"} | {"metadata": meta} | status
    meta = {k: v for k, v in new["metadata"].items() if k not in _FIXED and k != "selfLink"}
    meta |= {k: before[k] for k in _FIXED if k in before}
    result = new | {"metadata": meta}
    if "status" in target.resource.subresources:
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    return result


def _spec(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return what counts for the generation."""
    left_out = {"metadata", "apiVersion", "kind"}
    if "status" in resource.subresources:
        left_out.add("status")
    return {k: v for k, v in obj.items() if k not in left_out}


def _unknown_fields(resource: Resource, obj: dict[str, Any]) -> list[str]:
    """Remove the fields there are not, and name them."""
    return [f'unknown field "{text_path(path)}"' for path in resource.schema.prune(obj)]


def _complete(
    target: Target, obj: dict[str, Any], old: dict[str, Any] | None, options: WriteOptions
) -> None:
    """Prune, default and validate."""
    resource = target.resource
    unknown = _unknown_fields(resource, obj)
    if unknown and options.validation == "Strict":
        raise _undecodable(resource, f"strict decoding error: {', '.join(unknown)}")
    if options.validation == "Warn":
        options.warnings += unknown
    resource.schema.default(obj)
    found = validate(resource.schema, obj, ... if old is None else old)
    malformed = [e for e in found if e.type == "Invalid type"]
    if any(not resource.custom or e.path[0] == "metadata" for e in malformed):
        raise _undecodable(resource, "; ".join(map(str, malformed)))
    if not malformed:
        resource.prepare(obj, old)
        before = None if old is None else old["metadata"]
        label = resource.plural == "namespaces"
        found = check_metadata(obj["metadata"], before, label=label) + found
        if not any(e.type == "Required value" for e in found):
            found += resource.check(obj, old)
    if found:
        raise target.invalid(found)


def _undecodable(resource: Resource, why: str) -> APIError:
    """Return the 400 of a body whose values or fields Kubernetes could not even read."""
    return errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a '
        f"{resource.kind}: {why}"
    )
