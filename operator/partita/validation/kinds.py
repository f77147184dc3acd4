"""How objects are completed and judged, as an API server does before it stores them.

The same rules serve the API server of the test cluster, which gets objects from clients, and
`partita validate`, which reads them from files.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from partita.validation.builtin_schemas import compiled_schemas
from partita.validation.claim_rules import CLAIM_RULES
from partita.validation.field_errors import FieldError, Path, value_at
from partita.validation.metadata import check_metadata
from partita.validation.pod_rules import check_pod, check_pod_spec, prepare_pod, prepare_pod_spec
from partita.validation.schema import Schema
from partita.validation.values import validate
from partita.validation.workload_rules import (
    prepare_deployment,
    prepare_job,
    prepare_stateful_set,
)

__all__ = ["WORKLOADS", "KindRules", "UndecodableError", "builtin_kinds"]

_Obj = dict[str, Any]
Prepare = Callable[[_Obj, _Obj | None], None]
Check = Callable[[_Obj, _Obj | None], list[FieldError]]


class UndecodableError(Exception):
    """An object with values that cannot be decoded to a Go type of Kubernetes.

    Attributes
    ----------
    problems
        Violations of the schema, with those of the types.
    """

    def __init__(self, problems: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind.

    Attributes
    ----------
    prepare
        Sets values that depend on other fields. Its arguments are the object and, on updates, the
        old object.
    check
        Returns violations that the schema cannot express.
    builtin
        Whether it is a kind of Kubernetes, not of a CRD.
    short_names
        Whether names must be DNS labels instead of DNS subdomains.
    """

    schema: Schema
    prepare: Prepare = lambda _obj, _old: None
    check: Check = lambda _obj, _old: []
    builtin: bool = False
    short_names: bool = False

    def complete(
        self, obj: _Obj, old: _Obj | None = None, *, all_rules: bool = False
    ) -> list[FieldError]:
        """Set the defaults of an object without unknown fields, and return its violations.

        Parameters
        ----------
        old
            The previous object; `None` on creation.
        all_rules
            As in `values.validate`.

        Raises
        ------
        UndecodableError
            If values in the metadata or, of a built-in kind, anywhere have wrong types.
        """
        self.schema.default(obj)
        found = validate(self.schema, obj, ... if old is None else old, all_rules=all_rules)
        malformed = [error for error in found if error.type == "Invalid type"]
        if any(self.builtin or error.path[0] == "metadata" for error in malformed):
            raise UndecodableError(found)
        if not malformed:
            self.prepare(obj, old)
        before = None if old is None else old["metadata"]
        metadata = check_metadata(obj["metadata"], before, short_name=self.short_names)
        if malformed or any(error.type == "Required value" for error in found):
            return metadata + found
        return metadata + found + self.check(obj, old)


def _label_namespace(namespace: _Obj, _old: _Obj | None) -> None:
    meta = namespace["metadata"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]


def _encode_secret(secret: _Obj, _old: _Obj | None) -> None:
    for key, value in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _check_event(event: _Obj, _old: _Obj | None) -> list[FieldError]:
    about = event["involvedObject"].get("namespace", "")
    if (about or "default") == event["metadata"]["namespace"]:
        return []
    where = ("involvedObject", "namespace")
    return [FieldError(where, "Invalid value", "does not match event.namespace", about)]


_OWN: Final[dict[str, dict[str, Any]]] = {
    **CLAIM_RULES,
    "Event": {"check": _check_event},
    "Namespace": {"prepare": _label_namespace, "short_names": True},
    "Pod": {"prepare": prepare_pod, "check": check_pod},
    "Secret": {"prepare": _encode_secret},
}
_TEMPLATE: Final = ("spec", "template", "spec")
WORKLOADS: Final[dict[str, tuple[Path, Prepare | None]]] = {
    "CronJob": (("spec", "jobTemplate", *_TEMPLATE), None),
    "DaemonSet": (_TEMPLATE, None),
    "Deployment": (_TEMPLATE, prepare_deployment),
    "Job": (_TEMPLATE, prepare_job),
    "ReplicaSet": (_TEMPLATE, None),
    "StatefulSet": (_TEMPLATE, prepare_stateful_set),
}
"""Kinds with a template of Pods: the place of its spec, and what sets their other defaults."""


@cache
def builtin_kinds() -> dict[tuple[str, str], KindRules]:
    """Return the rules of Kubernetes' own kinds, by apiVersion and kind."""
    workloads = {kind: _of_workload(*rules) for kind, rules in WORKLOADS.items()}
    return {
        named: KindRules(schema, builtin=True, **(_OWN | workloads).get(named[1], {}))
        for named, schema in compiled_schemas().items()
    }


def _of_workload(place: Path, prepare_own: Prepare | None) -> dict[str, Any]:
    """Return the rules of a kind with a template of Pods."""

    def prepare(workload: _Obj, old: _Obj | None) -> None:
        prepare_pod_spec(value_at(workload, place))
        if prepare_own is not None:
            prepare_own(workload, old)

    def check(workload: _Obj, _old: _Obj | None) -> list[FieldError]:
        return check_pod_spec(value_at(workload, place), place)

    return {"prepare": prepare, "check": check}
