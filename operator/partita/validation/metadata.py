"""Validation of the metadata of objects, and the forms of text that names have in Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from partita.validation.field_errors import FieldError, Path

__all__ = ["FORMATS", "check_metadata"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ENDS = "and must start and end with an alphanumeric character"
_SHOWN = "regex used for validation is '{}')"
# Forms of text: maximum length, regular expression, and its description in messages.
_FORMS = {
    "k8s-short-name": (63, _LABEL, (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        f"{_ENDS} (e.g. 'my-name',  or '123-abc', {_SHOWN}")),
    "k8s-long-name": (253, rf"{_LABEL}(\.{_LABEL})*", (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
        f"or '.', {_ENDS} (e.g. 'example.com', {_SHOWN}")),
    "k8s-label-key": (63, _NAME, (
        f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} "
        f"(e.g. 'MyName',  or 'my.name',  or '123-abc', {_SHOWN}")),
    "k8s-label-value": (63, f"({_NAME})?", (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
        f"'.', {_ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345', {_SHOWN}")),
    "k8s-uuid": (36, r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", (
        "must be a lowercase UUID in 8-4-4-4-12 format")),
}  # fmt: skip
_ANNOTATIONS_LIMIT = 256 * 1024  # bytes, all annotations together


def check_metadata(
    meta: dict[str, Any], old: dict[str, Any] | None, *, short_name: bool
) -> list[FieldError]:
    """Return the violations in an object's metadata.

    Parameters
    ----------
    old
        The previous metadata; `None` on creation.
    short_name
        Whether the name must be a DNS label instead of a DNS subdomain.
    """
    errors = []
    if old is None:
        form = "k8s-short-name" if short_name else "k8s-long-name"
        errors += _check(form, meta["name"], ("metadata", "name"))
    for kind in ("labels", "annotations", "finalizers"):
        for key in meta.get(kind) or ():
            prefix, slash, name = key.rpartition("/")
            errors += _check("k8s-long-name", prefix, ("metadata", kind)) if slash else []
            errors += _check("k8s-label-key", name, ("metadata", kind))
    for value in (meta.get("labels") or {}).values():
        errors += _check("k8s-label-value", value, ("metadata", "labels"))
    annotations = meta.get("annotations") or {}
    if sum(len(k) + len(v) for k, v in annotations.items()) > _ANNOTATIONS_LIMIT:
        detail = f"may not be more than {_ANNOTATIONS_LIMIT} bytes"
        errors.append(FieldError(("metadata", "annotations"), "Too long", detail))
    return errors + _check_owners(meta) + _check_finalizers(meta, old or {})


def _check_owners(meta: dict[str, Any]) -> list[FieldError]:
    place = ("metadata", "ownerReferences")
    owners = meta.get("ownerReferences") or []
    errors = [
        FieldError((*place, key), "Invalid value", "must not be empty", owner.get(key, ""))
        for owner in owners
        for key in ("apiVersion", "kind", "name", "uid")
        if not owner.get(key)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        detail = "Only one reference can have Controller set to true"
        errors.append(FieldError(place, "Invalid value", detail, owners))
    return errors


def _check_finalizers(meta: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    added = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if not added or "deletionTimestamp" not in old:
        return []
    shown = ", ".join(f'"{f}"' for f in added)
    detail = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"[]string{{{shown}}}"
    )
    return [FieldError(("metadata", "finalizers"), "Forbidden", detail)]


def _check(form: str, value: str, place: Path) -> list[FieldError]:
    limit, pattern, words = _FORMS[form]
    details = [f"must be no more than {limit} bytes"] if len(value) > limit else []
    if re.fullmatch(pattern, value) is None:
        details.append(words.format(pattern))
    return [FieldError(place, "Invalid value", detail, value) for detail in details]


def _check_pool(value: str, place: Path) -> list[FieldError]:
    return [e for part in value.split("/") for e in _check("k8s-long-name", part, place)]


FORMATS: Final[dict[str, Callable[[str, Path], list[FieldError]]]] = {
    **{form: partial(_check, form) for form in _FORMS},
    "k8s-resource-pool-name": _check_pool,
}
"""Checks of a text, by the name that its form has as a format in Kubernetes' schemas."""
