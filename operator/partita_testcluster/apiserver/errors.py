"""The API server's errors: `Status` objects in the exact form that clients parse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from partita.validation.field_errors import FieldError

__all__ = ["APIError", "bad_request", "expired", "invalid", "object_error", "success"]


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


class APIError(Exception):
    """An error response of the API.

    Attributes
    ----------
    code
        The HTTP status.
    status
        The `Status` object in the body.
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
    """Return an error about one object.

    Parameters
    ----------
    reason
        ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Forbidden`` or ``Invalid``.
    kind
        Its resource, such as ``pods``, or its kind if the API server's message contains the kind.
    why
        The reason in the message; by default that the object's resourceVersion is stale.
    """
    code, text = _MESSAGES[reason]
    message = text.format(f'{kind}.{group} "{name}"' if group else f'{kind} "{name}"', why=why)
    return APIError(code, reason, message, **_details(group, kind, name), **details)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> APIError:
    """Return a 422 error that lists all violations."""
    texts = ", ".join(map(str, errors))
    why = texts if len(errors) == 1 else f"[{texts}]"
    return object_error("Invalid", group, kind, name, why, causes=[e.cause() for e in errors])


def bad_request(message: str) -> APIError:
    """Return a 400 error."""
    return APIError(400, "BadRequest", message)


def expired(message: str) -> APIError:
    """Return a 410 error for a resourceVersion or continue token that is no longer kept."""
    return APIError(410, "Expired", message)


def success(group: str = "", resource: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    """Return the `Status` of a successful request that returns no object."""
    return _status("Success", _details(group, resource, name) | more)
