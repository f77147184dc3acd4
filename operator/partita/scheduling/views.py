"""The little that is kept of Pods, Nodes and Namespaces."""

from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any, Self

from partita.constants import (
    ANNOTATION_JOB_UID,
    ANNOTATION_MEMORY,
    COMPONENT_JOB,
    COMPONENT_SERVER,
    LABEL_ATTEMPT,
    LABEL_COMPONENT,
    LABEL_JOB,
    LABEL_SERVER,
)
from partita.models.base import parse_memory
from partita.pods.gpu_operator import maintenance
from partita.pods.outcome import PodOutcome, read_outcome

__all__ = ["NamespaceView", "NodeView", "PodView"]

Json = dict[str, Any]

_GOING = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints by which cluster-autoscaler (utils/taints) and Karpenter (pkg/apis/v1) announce that they
drain a node; neither of them cordons it."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A Pod that the operator made."""

    uid: str
    name: str
    namespace: str
    version: int
    component: str
    job_uid: str
    job: str
    attempt: int
    server: str
    node: str
    memory: int
    """Bytes of GPU memory that it was made for."""
    deleting: bool
    outcome: PodOutcome
    grace: int = 30
    """Seconds that it has to terminate, or would have were it deleted."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def alive(self) -> bool:
        """Whether its program may still run."""
        return not self.outcome.finished

    def removed(self) -> Self:
        """Return the Pod as it is told of once it is gone."""
        return replace(self, deleting=True, outcome=self.outcome.removed())

    @classmethod
    def parse(cls, body: Json) -> Self | None:
        """Read a Pod; None if it is not one of ours."""
        meta = body["metadata"]
        labels = meta.get("labels") or {}
        component = labels.get(LABEL_COMPONENT, "")
        attempt = labels.get(LABEL_ATTEMPT, "")
        if component not in {COMPONENT_JOB, COMPONENT_SERVER}:
            return None
        if component == COMPONENT_JOB and not attempt.isdigit():
            return None
        return cls(
            uid=meta["uid"],
            # What stands in the job, too, or in many Pods, is kept once.
            name=intern(meta["name"]),
            namespace=intern(meta["namespace"]),
            version=int(meta["resourceVersion"]),
            component=intern(component),
            job_uid=intern((meta.get("annotations") or {}).get(ANNOTATION_JOB_UID, "")),
            job=intern(labels.get(LABEL_JOB, "")),
            attempt=int(attempt or 0),
            server=intern(labels.get(LABEL_SERVER, "")),
            node=intern((body.get("spec") or {}).get("nodeName") or ""),
            memory=_memory(meta),
            deleting=bool(meta.get("deletionTimestamp")),
            outcome=read_outcome(body.get("status") or {}),
            grace=_grace(body),
        )


def _grace(body: Json) -> int:
    """Read how long a Pod has to terminate; the API server fills in its default of 30 s."""
    asked = (body.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
    return int(body["metadata"].get("deletionGracePeriodSeconds", asked))


def _memory(meta: Json) -> int:
    try:
        return parse_memory((meta.get("annotations") or {}).get(ANNOTATION_MEMORY, 0))
    except ValueError:
        return 0  # somebody edited the annotation; the ledger knows better


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: whether Pods may start on it."""

    name: str
    uid: str
    version: int
    ready: bool
    schedulable: bool
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def maintenance(self) -> str:
        """The label that asks GPU clients to leave the node; empty if none does."""
        return maintenance(self.labels)

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read a Node."""
        conditions = (body.get("status") or {}).get("conditions") or []
        spec = body.get("spec") or {}
        taints = {taint.get("key") for taint in spec.get("taints") or []}
        return cls(
            name=body["metadata"]["name"],
            uid=body["metadata"]["uid"],
            version=int(body["metadata"]["resourceVersion"]),
            ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
            schedulable=not (spec.get("unschedulable") or taints & _GOING),
            labels=dict(body["metadata"].get("labels") or {}),
        )


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace and its labels."""

    name: str
    uid: str
    version: int
    terminating: bool
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read a Namespace."""
        meta = body["metadata"]
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            version=int(meta["resourceVersion"]),
            terminating=bool(meta.get("deletionTimestamp")),
            labels=dict(meta.get("labels") or {}),
        )
