"""Creates objects of files by the rules of an API server, without storing them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

from partita.constants import VERSION
from partita.models.crd import RESOURCES, crd_of
from partita.validation.field_errors import FieldError
from partita.validation.kinds import KindRules, UndecodableError, builtin_kinds
from partita.validation.manifest_objects import Finding, ManifestObject, meant, text_of
from partita.validation.schema import compile_schema
from partita.validation.values import validate

__all__ = ["create", "partita_kind", "pod_errors", "type_errors"]

Json = dict[str, Any]


@cache
def partita_kind(kind: str) -> KindRules:
    """Return the rules of one of Partita's kinds: those of all take 0.2 s."""
    (resource,) = (one for one in RESOURCES if one.kind == kind)
    (version,) = (v for v in crd_of(resource)["spec"]["versions"] if v["name"] == VERSION)
    return KindRules(compile_schema(version["schema"]["openAPIV3Schema"]))


def create(found: ManifestObject, rules: KindRules) -> Iterator[Finding]:
    """Yield why an API server would refuse an object, and set its defaults.

    Rules are checked although something else is malformed, if they do not read it.
    """
    body, schema = found.body, rules.schema
    for path in schema.prune(body):
        known = schema.fields_at(path[:-1])
        told = ", ".join(sorted(known)) or "none"
        yield found.finding(path, f"unknown field{meant(str(path[-1]), known, told)}")
    if body.get("metadata") is None:
        body["metadata"] = {}
    meta = body["metadata"]
    unnamed = False
    if isinstance(meta, dict) and not meta.get("name"):
        prefix = text_of(meta.get("generateName"))
        unnamed = not prefix
        # The name as the API server would generate it, or a placeholder for rules that read it.
        meta["name"] = "unnamed" if unnamed else f"{prefix[:58]}00000"
    errors = _errors(rules, body)
    if unnamed:
        del meta["name"]
        errors.append(FieldError(("metadata", "name"), "Required value", "write a name"))
    for error in errors:
        yield found.finding(error.path, error.message)


def pod_errors(spec: Json) -> list[FieldError]:
    """Return why an API server would refuse a Pod with this spec.

    Whether it has containers, and these have images, is left out: a part of a manifest may have
    claims alone, and a controller may add the rest.
    """
    pod = {"metadata": {"name": "pod"}, "spec": deepcopy(spec)}
    return _without_missing(_errors(builtin_kinds()["v1", "Pod"], pod))


def type_errors(api_version: str, body: Json) -> list[FieldError]:
    """Return what an API server cannot read in an object.

    Without an error every value of a known field has its type, and no item of a list lacks its
    name.
    """
    schema = builtin_kinds()[api_version, body["kind"]].schema
    errors = validate(schema, schema.default(deepcopy(body)))
    unreadable = [error for error in errors if error.type in {"Invalid type", "Required value"}]
    return _without_missing(unreadable)


def _errors(rules: KindRules, body: Json) -> list[FieldError]:
    try:
        return rules.complete(body, all_rules=True)
    except UndecodableError as error:
        return error.problems


def _without_missing(errors: list[FieldError]) -> list[FieldError]:
    return [
        error
        for error in errors
        if error.type != "Required value" or error.path[-1] not in {"containers", "image"}
    ]
