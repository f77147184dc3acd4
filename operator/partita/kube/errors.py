"""Errors of requests to the API server, with one class for each error that callers distinguish.

KubernetesError
├── NotFoundError      the object does not exist
├── AlreadyExistsError an object of that name exists
├── ConflictError      the object was changed by another write: read again
├── InvalidError       the API server rejects the content: retrying is useless
├── ForbiddenError     RBAC or an admission policy rejects it
├── WebhookError       an admission webhook fails
├── GoneError          a resource version is too old: list again
└── UnavailableError   overload, timeout, broken connection: try again later
    └── FencedError    this process is no longer the leader: it must not write
"""

import json
import os
from errno import errorcode
from ssl import SSLError
from typing import Any

__all__ = [
    "AlreadyExistsError",
    "ConflictError",
    "DefinitionError",
    "FencedError",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "KubernetesError",
    "LeaseLostError",
    "NotFoundError",
    "UnavailableError",
    "WebhookError",
    "from_response",
    "unanswered",
]

_MAX_FOREIGN_TEXT = 512
"""Number of characters of the API server's message that are kept."""
_WEBHOOK = "failed calling webhook"
"""Text in the message of an InternalError (k8s.io/apiserver, pkg/admission/plugin/webhook: the
dispatchers of validating and mutating webhooks)."""


class DefinitionError(Exception):
    """A CRD is missing or too old. The message says which one and what to do."""


class LeaseLostError(Exception):
    """Another process is the leader, or the API server could not be reached for too long."""


class KubernetesError(Exception):
    """A request to the API server failed.

    Parameters
    ----------
    what
        The request, such as `create pods team-a/train-1`.
    status
        HTTP status; 0 without an answer.
    message
        The message of the API server, cut to 512 characters.
    """

    def __init__(
        self,
        what: str,
        status: int,
        message: str,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{what}: {status} {message}" if status else f"{what}: {message}")
        self.what = what
        self.status = status
        self.message = message
        self.retry_after = retry_after


class NotFoundError(KubernetesError):
    """The object does not exist."""


class AlreadyExistsError(KubernetesError):
    """An object of that name exists."""


class ConflictError(KubernetesError):
    """The object was changed by another write."""


class InvalidError(KubernetesError):
    """The API server rejects the content."""


class ForbiddenError(KubernetesError):
    """RBAC or an admission policy rejects it."""


class WebhookError(KubernetesError):
    """An admission webhook cannot be called, or does not respond in time."""


class GoneError(KubernetesError):
    """The resource version is too old."""


class UnavailableError(KubernetesError):
    """The API server is currently not available."""


class FencedError(UnavailableError):
    """The process is no longer the leader."""


def unanswered(what: str, error: Exception) -> UnavailableError:
    """Return the error for a request without a complete answer, with its cause in words."""
    cause = getattr(error, "os_error", error)  # of aiohttp; errors of SSL have other numbers
    number = getattr(cause, "errno", None)
    if isinstance(error, TimeoutError):
        message = "no answer in time"
    elif number is not None and number in errorcode and not isinstance(cause, SSLError):
        message = os.strerror(number).lower()
    else:
        message = str(error) or type(error).__name__
    return UnavailableError(what, 0, message[:_MAX_FOREIGN_TEXT])


def from_response(what: str, status: int, body: bytes, retry_after: str | None) -> KubernetesError:
    """Return the error for a failed response.

    Parameters
    ----------
    body
        A Kubernetes `Status`, or the text of a proxy.
    retry_after
        The header `Retry-After` (seconds).
    """
    parsed: Any = None
    try:
        parsed = json.loads(body)
    except ValueError:
        message, reason = body.decode(errors="replace"), ""
    if isinstance(parsed, dict):
        message, reason = str(parsed.get("message", "")), str(parsed.get("reason", ""))
        if status == 429:  # which budget protects a Pod from eviction is a cause alone
            causes = (parsed.get("details") or {}).get("causes") or ()
            message = " ".join([message, *(str(c.get("message", "")) for c in causes)])
    elif parsed is not None:
        message, reason = str(parsed), ""
    kind: type[KubernetesError]
    match status:
        case 404:
            kind = NotFoundError
        case 409:
            kind = AlreadyExistsError if reason == "AlreadyExists" else ConflictError
        case 410:
            kind = GoneError
        case 400 | 405 | 413 | 415 | 422:
            kind = InvalidError
        case 401 | 403:
            kind = ForbiddenError
        case 500 if _WEBHOOK in message:
            kind = WebhookError
        case 408 | 429 | 500 | 502 | 503 | 504:
            kind = UnavailableError
        case _:
            kind = KubernetesError
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    return kind(what, status, message[:_MAX_FOREIGN_TEXT], retry_after=wait)
