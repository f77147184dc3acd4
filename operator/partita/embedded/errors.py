"""The API server's errors: `Status` objects in the exact shape clients parse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from typing_extensions import override

__all__ = ["APIError", "FieldError", "Key", "Path", "bad_request", "expired", "invalid",
           "object_error", "success", "text_path"]  # fmt: skip


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
_STALE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_MESSAGES = {
    "NotFound": (404, "{} not found"),
    "AlreadyExists": (409, "{} already exists"),
    "Conflict": (409, "Operation cannot be fulfilled on {}: {why}"),
    "Forbidden": (403, "{} is forbidden: {why}"),
    "Invalid": (422, "{} is invalid: {why}"),
}


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

    path: Path
    type: str
    detail: str = ""
    value: Any = ...

    @property
    def field(self) -> str:
        """The path as the API server writes it, such as ``spec.slices[0].name``."""
        parts = (f"[{p}]" if isinstance(p, (int, Key)) else f".{p}" for p in self.path)
        return "".join(parts).removeprefix(".") or "<nil>"

    @property
    def message(self) -> str:
        """The kind of error, the value and the detail, without the field."""
        text = "Invalid value" if self.type == "Invalid type" else self.type
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

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = _status("Failure", details, message=message, reason=reason, code=code)


def _status(status: str, details: dict[str, Any], **rest: Any) -> dict[str, Any]:
    told = {"details": details} if details else {}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status} | told | rest


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    return {k: v for k, v in (("name", name), ("group", group), ("kind", kind)) if v}


def object_error(
    reason: str, group: str, kind: str, name: str, why: str = _STALE, **details: Any
) -> APIError:
    """Return the error about one object.

    Parameters
    ----------
    reason
        ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Forbidden`` or ``Invalid``.
    kind
        Its resource, such as ``pods``; its kind where the API server names that instead.
    why
        By default that its resourceVersion is stale.
    """
    code, text = _MESSAGES[reason]
    message = text.format(f'{kind}.{group} "{name}"' if group else f'{kind} "{name}"', why=why)
    return APIError(code, reason, message, **_details(group, kind, name), **details)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> APIError:
    """Return the 422 that lists every violation."""
    texts = ", ".join(map(str, errors))
    why = texts if len(errors) == 1 else f"[{texts}]"
    return object_error("Invalid", group, kind, name, why, causes=[e.cause() for e in errors])


def bad_request(message: str) -> APIError:
    """Return a 400."""
    return APIError(400, "BadRequest", message)


def expired(message: str) -> APIError:
    """Return the 410 of a resourceVersion or continue token that is no longer kept."""
    return APIError(410, "Expired", message)


def success(group: str = "", resource: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    """Return the `Status` that answers what leaves no object to return."""
    return _status("Success", _details(group, resource, name) | more)
