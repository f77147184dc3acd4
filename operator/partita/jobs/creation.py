"""Results of creating the objects of a job's attempt."""

import re
from dataclasses import dataclass

from partita.kube.errors import (
    ForbiddenError,
    InvalidError,
    KubernetesError,
    NotFoundError,
    WebhookError,
)
from partita.scheduling.reasons import Reason, WaitingReason

__all__ = ["NameTaken", "RetryLater", "refused"]

_POLICY = re.compile(
    r"(ValidatingAdmissionPolicy|MutatingAdmissionPolicy|admission webhook) ['\"]([^'\"]+)['\"]"
)
"""Finds in the API server's message what denied an object. The status code does not identify such a
denial: for a policy it is 422 if its `reason` is unset
(https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/)."""


@dataclass(frozen=True, slots=True)
class NameTaken:
    """An object of another owner has the name."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The object could not be created; a retry may succeed."""

    why: str


def refused(error: KubernetesError, kind: str) -> WaitingReason | None:
    """Return why the API server rejects an object of a job; None if the error is not a rejection.

    Parameters
    ----------
    kind
        The kind of the object, for the message.
    """
    said = error.message
    if isinstance(error, WebhookError):
        return WaitingReason(Reason.WEBHOOK_FAILED, f"its {kind} cannot be created: {said}")
    if not isinstance(error, InvalidError | ForbiddenError | NotFoundError):
        return None
    if found := _POLICY.search(said):
        denied = f"{found[1]} {found[2]} does not admit its {kind}: {said}"
        return WaitingReason(Reason.POD_FORBIDDEN, denied)
    if isinstance(error, InvalidError):
        said = f"the API server refuses its {kind}: {said}; correct spec.template"
        return WaitingReason(Reason.INVALID_SPEC, said)
    return WaitingReason(Reason.POD_FORBIDDEN, f"the cluster does not admit its {kind}: {said}")
