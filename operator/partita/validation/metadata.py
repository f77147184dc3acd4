"""Validation of the metadata of objects: names, labels, annotations, owners, finalizers."""

from __future__ import annotations

import re
from typing import Any

from partita.validation.field_errors import FieldError, Path

__all__ = ["check_label", "check_metadata", "check_subdomain"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ENDS = "and must start and end with an alphanumeric character"
# Forms of text: maximum length, regular expression, and its description in messages.
_FORMS = {
    "label": (63, _LABEL, (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        f"{_ENDS} (e.g. 'my-name',  or '123-abc'")),
    "subdomain": (253, rf"{_LABEL}(\.{_LABEL})*", (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
        f"or '.', {_ENDS} (e.g. 'example.com'")),
    "key": (63, _NAME, (
        f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} "
        "(e.g. 'MyName',  or 'my.name',  or '123-abc'")),
    "value": (63, f"({_NAME})?", (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
        f"'.', {_ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345'")),
}  # fmt: skip
_ANNOTATIONS_LIMIT = 256 * 1024  # bytes, all annotations together


def check_metadata(
    meta: dict[str, Any], old: dict[str, Any] | None, *, label: bool
) -> list[FieldError]:
    """Return the violations in an object's metadata.

    Parameters
    ----------
    old
        The previous metadata; `None` on creation.
    label
        Whether the name must be a DNS label instead of a DNS subdomain.
    """
    errors = []
    if old is None:
        errors += _check("label" if label else "subdomain", meta["name"], ("metadata", "name"))
    for kind in ("labels", "annotations", "finalizers"):
        for key in meta.get(kind) or ():
            prefix, slash, name = key.rpartition("/")
            errors += _check("subdomain", prefix, ("metadata", kind)) if slash else []
            errors += _check("key", name, ("metadata", kind))
    for value in (meta.get("labels") or {}).values():
        errors += _check("value", value, ("metadata", "labels"))
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


def check_label(value: str, place: Path) -> list[FieldError]:
    """Return the reasons that a value is not a DNS label."""
    return _check("label", value, place)


def check_subdomain(value: str, place: Path) -> list[FieldError]:
    """Return the reasons that a value is not a DNS subdomain."""
    return _check("subdomain", value, place)


def _check(form: str, value: str, place: Path) -> list[FieldError]:
    limit, pattern, words = _FORMS[form]
    details = [f"must be no more than {limit} bytes"] if len(value) > limit else []
    if re.fullmatch(pattern, value) is None:
        details.append(f"{words}, regex used for validation is '{pattern}')")
    return [FieldError(place, "Invalid value", detail, value) for detail in details]
