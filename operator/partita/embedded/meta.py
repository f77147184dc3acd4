"""Names, labels and the parts of metadata that the server itself writes."""

from __future__ import annotations

import random
import re
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from partita.embedded.cel import parse_quantity
from partita.embedded.errors import FieldError, bad_request

__all__ = [
    "amounts",
    "check_label",
    "check_metadata",
    "generated_name",
    "new_uid",
    "now",
    "timestamp",
]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ANNOTATIONS_LIMIT = 256 * 1024  # bytes, all annotations together
# Without vowels and look-alikes (apimachinery, util/rand).
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def timestamp(seconds: float) -> str:
    """Return a time since the epoch as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now(plus: float = 0) -> str:
    """Return the time as Kubernetes writes it, `plus` seconds from now."""
    return timestamp(time.time() + plus)


def new_uid() -> str:
    """Return a UID for a new object."""
    return str(uuid.uuid4())


def generated_name(prefix: str) -> str:
    """Return a name for ``generateName``."""
    return prefix[:58] + "".join(random.choices(_ALPHABET, k=5))  # noqa: S311 - not a secret


def check_metadata(
    meta: dict[str, Any], old: dict[str, Any] | None, *, label: bool
) -> list[FieldError]:
    """Return the violations in an object's metadata.

    Parameters
    ----------
    old
        The metadata it replaces; `None` on creation.
    label
        The name must be a DNS label rather than a DNS subdomain.
    """
    errors = [] if old is not None else _check_name(meta["name"], label=label)
    errors += _check_labels(meta.get("labels") or {})
    errors += _check_annotations(meta.get("annotations") or {})
    errors += _check_owners(meta.get("ownerReferences") or [])
    finalizers = meta.get("finalizers") or []
    for key in finalizers:
        errors += _check_key(key, ("metadata", "finalizers"))
    added = sorted(set(finalizers) - set((old or {}).get("finalizers") or ()))
    if added and old is not None and "deletionTimestamp" in old:
        shown = ", ".join(f'"{f}"' for f in added)
        detail = (
            "no new finalizers can be added if the object is being deleted, found new "
            f"finalizers []string{{{shown}}}"
        )
        errors.append(FieldError(("metadata", "finalizers"), "Forbidden", detail))
    return errors


def _check_labels(labels: dict[str, str]) -> list[FieldError]:
    place = ("metadata", "labels")
    errors = []
    for key, value in labels.items():
        errors += _check_key(key, place)
        if len(value) > 63:
            errors.append(_bad(place, value, "must be no more than 63 bytes"))
        elif _VALUE.fullmatch(value) is None:
            detail = (
                "a valid label must be an empty string or consist of alphanumeric characters, "
                "'-', '_' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
                "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            )
            errors.append(_bad(place, value, detail))
    return errors


def _check_annotations(annotations: dict[str, str]) -> list[FieldError]:
    place = ("metadata", "annotations")
    errors = []
    for key in annotations:
        errors += _check_key(key, place)
    if sum(len(k) + len(v) for k, v in annotations.items()) > _ANNOTATIONS_LIMIT:
        detail = f"may not be more than {_ANNOTATIONS_LIMIT} bytes"
        errors.append(FieldError(place, "Too long", detail))
    return errors


def _check_owners(owners: list[dict[str, Any]]) -> list[FieldError]:
    place = ("metadata", "ownerReferences")
    errors = [
        _bad((*place, key), owner.get(key, ""), "must not be empty")
        for owner in owners
        for key in ("apiVersion", "kind", "name", "uid")
        if not owner.get(key)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        detail = "Only one reference can have Controller set to true"
        errors.append(_bad(place, owners, detail))
    return errors


def _bad(path: tuple[str | int, ...], value: Any, detail: str) -> FieldError:
    return FieldError(path, "Invalid value", detail, value)


def _check_name(name: str, *, label: bool) -> list[FieldError]:
    place = ("metadata", "name")
    if label:
        return check_label(name, place)
    errors = []
    if len(name) > 253:
        errors.append(_bad(place, name, "must be no more than 253 bytes"))
    if re.fullmatch(_SUBDOMAIN, name) is None:
        errors.append(_bad(place, name, (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'example.com', regex used for validation is '{_SUBDOMAIN}')")))  # fmt: skip
    return errors


def check_label(value: str, place: tuple[str | int, ...]) -> list[FieldError]:
    """Return why a value is no DNS label."""
    errors = []
    if len(value) > 63:
        errors.append(_bad(place, value, "must be no more than 63 bytes"))
    if re.fullmatch(_LABEL, value) is None:
        errors.append(_bad(place, value, (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
            "'-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
            f"'123-abc', regex used for validation is '{_LABEL}')")))  # fmt: skip
    return errors


def _check_key(key: str, place: tuple[str, ...]) -> list[FieldError]:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or re.fullmatch(_SUBDOMAIN, prefix) is None):
        detail = (
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
            "characters, '-' or '.', and must start and end with an alphanumeric character "
            f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
        )
        return [_bad(place, key, detail)]
    if len(name) > 63 or _NAME_PART.fullmatch(name) is None:
        detail = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
        return [_bad(place, key, detail)]
    return []


def amounts(quantities: dict[str, Any]) -> dict[str, str]:
    """Return quantities as text; a number is one as well.

    Raises
    ------
    APIError
        400 where one is none: in Kubernetes such a body cannot even be decoded.
    """
    out = {name: str(value) for name, value in quantities.items()}
    for value in out.values():
        try:
            parse_quantity(value)
        except ValueError as e:
            raise bad_request(str(e)) from e
    return out
