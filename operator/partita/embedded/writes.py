"""What create, update, patch, apply, delete and bind mean.

Everything is synchronous, so each call is one atomic step: preconditions hold until the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from partita.embedded import errors
from partita.embedded.apply import Manager, apply_config, record_update
from partita.embedded.errors import APIError, FieldError, text_path
from partita.embedded.meta import check_metadata, generated_name, new_uid, now, timestamp
from partita.embedded.patches import json_patch, merge_patch, strategic_merge_patch
from partita.embedded.resources import Resource
from partita.embedded.store import Record, Store
from partita.embedded.validation import validate

__all__ = ["DeleteOptions", "WriteOptions", "Writer"]

_FINALIZER_OF_POLICY = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_GENERATE_TRIES = 8


@dataclass(slots=True)
class WriteOptions:
    """The query of a write.

    Attributes
    ----------
    warnings
        Filled by the write: what the client should be told beside its result.
    """

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"  # of unknown fields: Strict, Warn or Ignore
    force: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete."""

    policy: str = ""  # Foreground, Background or Orphan
    grace: int | None = None  # seconds
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class Writer:
    """All writes to one store.

    Parameters
    ----------
    namespace
        Returns the record of a namespace.
    """

    def __init__(self, store: Store, namespace: Callable[[str], Record | None]) -> None:
        self._store = store
        self._namespace = namespace

    # -- reading for a write --------------------------------------------------------------

    def existing(self, resource: Resource, namespace: str, name: str) -> Record:
        """Return the current version of an object.

        Raises
        ------
        APIError
            404 where there is none.
        """
        record = resource.collection.get(namespace, name)
        if record is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return record

    # -- create ---------------------------------------------------------------------------

    def create(
        self, resource: Resource, namespace: str, body: Any, options: WriteOptions
    ) -> Record:
        """Create an object.

        Raises
        ------
        APIError
            400, 403, 404, 409 or 422, as the API server answers.
        """
        obj = self._decode(resource, namespace, "", body)
        if obj["metadata"].get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        obj["metadata"].pop("managedFields", None)
        manager = Manager(options.manager, "Update", resource.api_version)
        return self._create(resource, namespace, obj, options, manager)

    def _create(
        self,
        resource: Resource,
        namespace: str,
        obj: dict[str, Any],
        options: WriteOptions,
        manager: Manager | None,
    ) -> Record:
        meta = obj["metadata"]
        self._choose_name(resource, namespace, meta)
        self._check_namespace(resource, namespace, meta["name"])
        for key in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                    "resourceVersion"):  # fmt: skip
            meta.pop(key, None)
        if resource.namespaced:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        meta["uid"] = new_uid()
        meta["creationTimestamp"] = now()
        if resource.generation:
            meta["generation"] = 1
        if "status" in resource.subresources and resource.plural != "nodes":
            obj.pop("status", None)
        self._complete(resource, obj, None, options)
        if resource.collection.get(namespace, meta["name"]) is not None:
            raise errors.already_exists(resource.group, resource.plural, meta["name"])
        if manager is not None:
            record_update(resource.schema, {}, obj, manager, now())
        return self._commit(resource, obj, options)

    def _choose_name(self, resource: Resource, namespace: str, meta: dict[str, Any]) -> None:
        if meta.get("name"):
            return
        if not meta.get("generateName"):
            problem = FieldError(
                ("metadata", "name"), "Required value", "name or generateName is required"
            )
            raise errors.invalid(resource.group, resource.kind, "", [problem])
        for _ in range(_GENERATE_TRIES):
            meta["name"] = generated_name(meta["generateName"])
            if resource.collection.get(namespace, meta["name"]) is None:
                return

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        record = self._namespace(namespace)
        if record is None:
            raise errors.not_found("", "namespaces", namespace)
        if record.deleting:
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise errors.forbidden(resource.group, resource.plural, name, why, causes=[cause])

    # -- update ---------------------------------------------------------------------------

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        options: WriteOptions,
        subresource: str = "",
    ) -> Record:
        """Replace an object, or only its status."""
        obj = self._decode(resource, namespace, name, body)
        record = self.existing(resource, namespace, name)
        if not obj["metadata"].get("resourceVersion") and not resource.unconditional:
            problem = FieldError(
                ("metadata", "resourceVersion"), "Invalid value",
                "must be specified for an update", 0,
            )  # fmt: skip
            raise errors.invalid(resource.group, resource.kind, name, [problem])
        return self._replace(resource, record, record.obj, obj, options, subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        kind: str,
        body: Any,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[Record, bool]:
        """Patch an object; return it, and whether it was created (by an apply).

        Parameters
        ----------
        kind
            ``json-patch``, ``merge-patch``, ``strategic-merge-patch`` or ``apply-patch``.
        """
        if kind == "apply-patch":
            return self._apply(resource, namespace, name, body, options, subresource)
        record = self.existing(resource, namespace, name)
        old = record.obj
        if kind == "json-patch":
            new = json_patch(old, body)
        elif not isinstance(body, dict):
            raise errors.bad_request(f"a {kind} must be an object")
        elif kind == "merge-patch":
            new = merge_patch(old, body)
        else:
            new = strategic_merge_patch(old, body, resource.schema)
        new = self._decode(resource, namespace, name, new)
        return self._replace(resource, record, old, new, options, subresource), False

    def _apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        options: WriteOptions,
        subresource: str,
    ) -> tuple[Record, bool]:
        config = self._decode(resource, namespace, name, body)
        if "managedFields" in config["metadata"]:
            raise errors.bad_request("metadata.managedFields must be nil")
        unknown = resource.schema.prune(config)
        if unknown:
            fields = ", ".join(f'unknown field "{text_path(p)}"' for p in unknown)
            raise self._undecodable(resource, f"strict decoding error: {fields}")
        manager = Manager(options.manager, "Apply", resource.api_version, subresource)
        record = resource.collection.get(namespace, name)
        if subresource:
            meta = {k: v for k, v in config["metadata"].items() if k == "resourceVersion"}
            config = {"metadata": meta} | {k: v for k, v in config.items() if k == subresource}
        elif "status" in resource.subresources:
            config.pop("status", None)
        if record is None:
            if subresource:
                raise errors.not_found(resource.group, resource.plural, name)
            if config["metadata"].get("uid") or config["metadata"].get("resourceVersion"):
                raise errors.conflict(resource.group, resource.plural, name)
            new = apply_config(resource.schema, {"metadata": {}}, config, manager, now(),
                               force=True)  # fmt: skip
            new |= {k: config[k] for k in ("apiVersion", "kind")}
            new["metadata"]["name"] = name
            return self._create(resource, namespace, new, options, None), True
        old = record.obj
        self._check_preconditions(resource, record, config["metadata"])
        new = apply_config(resource.schema, record.obj, config, manager, now(), force=options.force)
        replaced = self._replace(resource, record, old, new, options, subresource, applied=True)
        return replaced, False

    def _replace(
        self,
        resource: Resource,
        record: Record,
        old: dict[str, Any],
        new: dict[str, Any],
        options: WriteOptions,
        subresource: str,
        *,
        applied: bool = False,
    ) -> Record:
        """Store `new` for `old`, as far as the endpoint may change it."""
        self._check_preconditions(resource, record, new["metadata"])
        new = self._carry_over(resource, old, new, subresource)
        self._complete(resource, new, old, options)
        if resource.generation and self._spec(resource, new) != self._spec(resource, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if not applied:
            manager = Manager(options.manager, "Update", resource.api_version, subresource)
            record_update(resource.schema, old, new, manager, now())
        if new == old:
            return record
        return self.write(resource, record, new, options)

    def write(
        self, resource: Resource, record: Record, obj: dict[str, Any], options: WriteOptions
    ) -> Record:
        """Store a new version without further checks; the last one of a deletion removes it."""
        meta = obj["metadata"]
        gone = "deletionTimestamp" in meta and not (
            meta.get("finalizers")
            or meta.get("deletionGracePeriodSeconds")
            or resource.plural == "namespaces"
        )
        if not gone:
            return self._commit(resource, obj, options)
        if not options.dry_run:
            self._store.remove(resource.collection, record)
        return self._commit(resource, obj, WriteOptions(dry_run=True))

    def _carry_over(
        self, resource: Resource, old: dict[str, Any], new: dict[str, Any], subresource: str
    ) -> dict[str, Any]:
        """Return `new` with what this endpoint does not write taken from `old`."""
        before = old["metadata"]
        if subresource == "status":
            meta = dict(before)
            given = new["metadata"].get("managedFields")
            if given is not None:
                meta["managedFields"] = given
            status = {"status": new["status"]} if "status" in new else {}
            return {k: v for k, v in old.items() if k != "status"} | {"metadata": meta} | status
        new = dict(new)
        meta = new["metadata"] = dict(new["metadata"])
        for key in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "namespace",
                    "deletionGracePeriodSeconds", "resourceVersion", "generateName"):  # fmt: skip
            meta.pop(key, None)
            if key in before:
                meta[key] = before[key]
        meta.pop("selfLink", None)
        if "status" in resource.subresources:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        return new

    @staticmethod
    def _spec(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
        """Return what counts for the generation."""
        left_out = {"metadata", "apiVersion", "kind"}
        if "status" in resource.subresources:
            left_out.add("status")
        return {k: v for k, v in obj.items() if k not in left_out}

    # -- common to all writes -------------------------------------------------------------

    def _decode(self, resource: Resource, namespace: str, name: str, body: Any) -> dict[str, Any]:
        """Check that `body` is an object of this kind and place."""
        if not isinstance(body, dict):
            raise errors.bad_request("the body of the request must be an object")
        kind, version = body.get("kind"), body.get("apiVersion")
        if not resource.custom:
            kind, version = kind or resource.kind, version or resource.api_version
        if kind != resource.kind and resource.custom and version == resource.api_version:
            problem = FieldError(("kind",), "Invalid value", f"must be {resource.kind}", kind)
            raise errors.invalid(resource.group, resource.kind, name, [problem])
        if kind != resource.kind or version != resource.api_version:
            raise errors.bad_request(
                f"the object provided ({version}, Kind={kind}) does not match the endpoint "
                f"({resource.api_version}, Kind={resource.kind})"
            )
        meta = body.get("metadata")
        if meta is not None and not isinstance(meta, dict):
            raise errors.bad_request("metadata must be an object")
        meta = {k: v for k, v in (meta or {}).items() if v is not None}
        obj = {**body, "apiVersion": version, "kind": kind, "metadata": meta}
        if meta.get("namespace", namespace) != namespace and resource.namespaced:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if name and meta.setdefault("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL "
                f"({name})"
            )
        return obj

    def _check_preconditions(
        self, resource: Resource, record: Record, meta: dict[str, Any]
    ) -> None:
        if (uid := meta.get("uid")) and uid != record.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            raise errors.conflict(resource.group, resource.plural, record.name, why + record.uid)
        version = meta.get("resourceVersion")
        if version and version != str(record.rv):
            raise errors.conflict(resource.group, resource.plural, record.name)

    def _complete(
        self,
        resource: Resource,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
        options: WriteOptions,
    ) -> None:
        """Prune, default and validate."""
        unknown = [f'unknown field "{text_path(p)}"' for p in resource.schema.prune(obj)]
        if unknown and options.validation == "Strict":
            raise self._undecodable(resource, f"strict decoding error: {', '.join(unknown)}")
        if options.validation == "Warn":
            options.warnings += unknown
        resource.schema.default(obj)
        found = validate(resource.schema, obj, ... if old is None else old)
        malformed = [e for e in found if e.type == "Invalid type"]
        if any(not resource.custom or e.path[0] == "metadata" for e in malformed):
            # Kubernetes could not even decode it.
            raise self._undecodable(resource, "; ".join(map(str, malformed)))
        if not malformed:
            resource.prepare(obj, old)
            before = None if old is None else old["metadata"]
            label = resource.plural == "namespaces"
            found = check_metadata(obj["metadata"], before, label=label) + found
            if not any(e.type == "Required value" for e in found):
                found += resource.check(obj, old)
        if found:
            name = obj["metadata"].get("name", "")
            raise errors.invalid(resource.group, resource.kind, name, found)

    @staticmethod
    def _undecodable(resource: Resource, why: str) -> APIError:
        return errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: {why}"
        )

    def _commit(self, resource: Resource, obj: dict[str, Any], options: WriteOptions) -> Record:
        if not options.dry_run:
            return self._store.put(resource.collection, obj)
        meta = obj["metadata"]
        return Record(
            namespace=meta.get("namespace", ""), name=meta["name"], uid=meta["uid"],
            rv=self._store.rv, raw=orjson.dumps(obj), labels=meta.get("labels") or {},
            selectable={}, owners=(), deleting=False,
        )  # fmt: skip

    # -- delete ---------------------------------------------------------------------------

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions
    ) -> tuple[Record, bool]:
        """Delete an object, or mark it for deletion.

        Returns
        -------
        tuple
            Its last version, and whether it is gone.
        """
        record = self.existing(resource, namespace, name)
        if options.uid and options.uid != record.uid:
            why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: "
            raise errors.conflict(resource.group, resource.kind, name, why + record.uid)
        if options.resource_version and options.resource_version != str(record.rv):
            why = "Precondition failed: ResourceVersion in precondition: "
            why += f"{options.resource_version}, ResourceVersion in object meta: {record.rv}"
            raise errors.conflict(resource.group, resource.kind, name, why)
        obj = record.obj
        meta = obj["metadata"]
        grace = _grace(resource, obj, options.grace)
        meta["finalizers"] = self._finalizers(resource, meta, options.policy)
        waits = bool(meta["finalizers"] or grace or resource.plural == "namespaces")
        if not meta["finalizers"]:
            del meta["finalizers"]
        if not waits:
            if options.dry_run:
                return record, True
            return self._store.remove(resource.collection, record), True
        if "deletionTimestamp" not in meta:
            meta["deletionTimestamp"] = now(grace)
            meta["deletionGracePeriodSeconds"] = grace
            if "generation" in meta:
                meta["generation"] += 1
            if resource.plural == "namespaces":
                obj.setdefault("status", {})["phase"] = "Terminating"
                del meta["deletionGracePeriodSeconds"]
        elif (left := meta.get("deletionGracePeriodSeconds", 0)) > grace:
            sooner = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp() - left + grace
            meta["deletionTimestamp"] = timestamp(sooner)
            meta["deletionGracePeriodSeconds"] = grace
        if obj == record.obj:
            return record, False
        return self._commit(resource, obj, WriteOptions(dry_run=options.dry_run)), False

    @staticmethod
    def _finalizers(resource: Resource, meta: dict[str, Any], policy: str) -> list[str]:
        """Return the finalizers that a deletion under this policy leaves on the object."""
        out = list(meta.get("finalizers") or ())
        if policy:
            wanted = _FINALIZER_OF_POLICY.get(policy)
            out = [f for f in out if f not in _FINALIZER_OF_POLICY.values() or f == wanted]
            if wanted and wanted not in out:
                out.append(wanted)
        starts = "deletionTimestamp" not in meta
        if resource.plural == "customresourcedefinitions" and starts and CRD_FINALIZER not in out:
            out.append(CRD_FINALIZER)
        return out

    def bind(
        self, resource: Resource, namespace: str, name: str, body: Any, options: WriteOptions
    ) -> None:
        """Bind a Pod to a node, as a scheduler does."""
        record = self.existing(resource, namespace, name)
        pod = record.obj
        target = (body or {}).get("target") or {}
        if not target.get("name"):
            problem = FieldError(("target", "name"), "Required value")
            raise errors.invalid("", "Binding", name, [problem])
        meta = (body or {}).get("metadata") or {}
        self._check_preconditions(resource, record, meta)
        if record.deleting:
            raise errors.conflict(
                "",
                "pods/binding",
                name,
                f"pod {name} is being deleted, cannot be assigned to a host",
            )
        if node := pod["spec"].get("nodeName"):
            raise errors.conflict(
                "", "pods/binding", name, f'pod {name} is already assigned to node "{node}"'
            )
        pod["spec"]["nodeName"] = target["name"]
        status = pod.setdefault("status", {})
        conditions = [c for c in status.get("conditions", ()) if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
        status["conditions"] = [*conditions, scheduled]
        manager = Manager(options.manager, "Update", resource.api_version, "binding")
        record_update(resource.schema, record.obj, pod, manager, now())
        self._commit(resource, pod, options)


def _grace(resource: Resource, obj: dict[str, Any], asked: int | None) -> int:
    """Return how long the object's deletion waits for its kubelet, in seconds."""
    if resource.group or resource.plural != "pods":
        return 0
    if not obj["spec"].get("nodeName") or obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    left = obj["metadata"].get("deletionGracePeriodSeconds")
    wanted: int = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return wanted if left is None else min(wanted, left)
