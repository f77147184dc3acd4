"""The API server's errors: `Status` objects in the exact shape clients parse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from typing_extensions import override

__all__ = [
    "APIError",
    "FieldError",
    "Key",
    "Path",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "not_found",
    "success",
    "text_path",
]


class Key(str):
    """A key of a map in a field path, which the API server writes in brackets."""

    __slots__ = ()


Path = tuple[str | int, ...]
"""Keys and indices from the root of an object or schema."""

_REASONS = {
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Unsupported value": "FieldValueNotSupported",
    "Duplicate value": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Invalid type": "FieldValueTypeInvalid",
}
# What each type is printed as (apimachinery's field.ErrorType.String).
_PRINTED = {"Invalid type": "Invalid value"}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violation, at one field.

    Attributes
    ----------
    path
        Keys and indices from the object's root; empty for the object itself.
    type
        One of the API server's kinds of error, such as ``Invalid value``.
    detail
        What is wrong, in words.
    value
        The offending value; `Ellipsis` where the message names none.
    """

    path: tuple[str | int, ...]
    type: str
    detail: str = ""
    value: Any = ...

    @property
    def field(self) -> str:
        """The path as the API server writes it, such as ``spec.slices[0].name``."""
        out = ""
        for part in self.path:
            if isinstance(part, int) or type(part) is Key:
                out += f"[{part}]"
            else:
                out += f".{part}" if out else part
        return out or "<nil>"

    @property
    def message(self) -> str:
        """The kind of error, the value and the detail, without the field."""
        text = _PRINTED.get(self.type, self.type)
        if self.value is not ... and self.type not in ("Required value", "Forbidden", "Too long"):
            text += f": {orjson.dumps(self.value).decode()}"
        return f"{text}: {self.detail}" if self.detail else text

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> dict[str, str]:
        """Return it as an entry of a `Status`'s ``details.causes``."""
        return {"reason": _REASONS[self.type], "message": self.message, "field": self.field}


def text_path(path: Path) -> str:
    """Return ``spec.slices[0].name`` of its parts, keys of maps written like fields."""
    return FieldError(tuple(str(p) if isinstance(p, Key) else p for p in path), "").field


class APIError(Exception):
    """An answer of the API other than success.

    Attributes
    ----------
    code
        The HTTP status.
    status
        The `Status` object sent as the body.
    """

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if details:
            self.status["details"] = details


def _qualified(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {k: v for k, v in details.items() if v}


def not_found(group: str, resource: str, name: str) -> APIError:
    """Return the 404 of an object that does not exist."""
    message = f'{_qualified(group, resource)} "{name}" not found'
    return APIError(404, "NotFound", message, _details(group, resource, name))


def already_exists(group: str, resource: str, name: str) -> APIError:
    """Return the 409 of a name that is taken."""
    message = f'{_qualified(group, resource)} "{name}" already exists'
    return APIError(409, "AlreadyExists", message, _details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str = "") -> APIError:
    """Return the 409 of a precondition that does not hold; by default a stale resourceVersion."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    message = f'Operation cannot be fulfilled on {_qualified(group, resource)} "{name}": {why}'
    return APIError(409, "Conflict", message, _details(group, resource, name))


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> APIError:
    """Return the 422 that lists every violation."""
    texts = [str(e) for e in errors]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{_qualified(group, kind)} "{name}" is invalid: {listed}'
    details = _details(group, kind, name) | {"causes": [e.cause() for e in errors]}
    return APIError(422, "Invalid", message, details)


def bad_request(message: str) -> APIError:
    """Return a 400."""
    return APIError(400, "BadRequest", message)


def forbidden(group: str, resource: str, name: str, why: str, **details: Any) -> APIError:
    """Return a 403 (there is no authorization here: it is always about the object's state)."""
    message = f'{_qualified(group, resource)} "{name}" is forbidden: {why}'
    return APIError(403, "Forbidden", message, _details(group, resource, name) | details)


def expired(message: str) -> APIError:
    """Return the 410 of a resourceVersion or continue token that is no longer kept."""
    return APIError(410, "Expired", message)


def success(group: str, resource: str, name: str, uid: str) -> dict[str, Any]:
    """Return the `Status` that answers a deletion which left nothing behind."""
    details = _details(group, resource, name) | {"uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
