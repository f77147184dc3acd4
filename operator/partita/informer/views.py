"""The little that is kept of Pods, Nodes and Namespaces."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from sys import intern
from typing import Any, Self

from partita.constants import DEVICE_RESOURCE_PREFIX, GROUP
from partita.models.quantities import parse_amount, parse_time
from partita.pods.gpu_operator import maintenance
from partita.pods.job_pod import is_gpu_resource
from partita.pods.node_rules import Taint
from partita.pods.outcome import PodOutcome, read_outcome
from partita.pods.requests import Requests, requests_of
from partita.pods.startup import UNDERWAY, Startup, read_startup

__all__ = ["NamespaceView", "NodeInfo", "NodeView", "PodView", "requested_devices"]

Json = dict[str, Any]

_GOING = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints by which cluster-autoscaler (utils/taints) and Karpenter (pkg/apis/v1) announce that they
drain a node; neither of them cordons it."""


@dataclass(frozen=True, slots=True)
class PodView:
    """A Pod whose controller is a SharedGPUJob or a GPUServer, or that requests our devices.

    A tenant can write labels, annotations and owner references of its own Pods. So a `PodView` is
    only a claim: `State` compares it with what the owner says before the Pod counts. Namespace,
    name and UID of a Pod never change, and its owner is read once, when the Pod is first seen.
    """

    uid: str
    name: str
    namespace: str
    version: int
    owner_kind: str
    """`SharedGPUJob` or `GPUServer`."""
    owner: str
    """Name of the job or the GPUServer."""
    owner_uid: str
    """UID of that owner; empty if the Pod does not name it (any more)."""
    attempt: int
    """Number of the job's attempt, from the Pod's name; 0 for a server Pod."""
    node: str
    deleting: bool
    outcome: PodOutcome
    grace: int = 30
    """Seconds that it has to terminate, or would have were it deleted."""
    startup: Startup | None = None
    """What it waits for; None once a main container has started."""
    deletion_time: datetime | None = None
    """When it is to be gone at the latest; None if nobody deletes it."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def alive(self) -> bool:
        """Whether its program may still run."""
        return not self.outcome.finished

    @property
    def stuck(self) -> str:
        """Why it does not start, empty if nothing is known to keep it from that."""
        waits = self.startup is not None and self.startup.reason not in UNDERWAY
        return self.startup.message if waits and self.startup else ""

    def removed(self) -> Self:
        """Return the Pod as it is told of once it is gone."""
        return replace(self, deleting=True, outcome=self.outcome.removed())

    def updated(self, body: Json) -> Self:
        """Read a newer version of this Pod; its owner stays, whatever the new version says."""
        return replace(self, **_mutable(body))

    @classmethod
    def parse(cls, body: Json) -> Self | None:
        """Read a Pod; None if it does not claim to be one of ours.

        It is called for every Pod of the cluster, so a Pod of others costs one look at its owners
        and its limits.
        """
        meta = body["metadata"]
        owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
        if owner is None or not owner["apiVersion"].startswith(f"{GROUP}/"):
            if not requested_devices(body):
                return None
            # A job's Pod that has lost its owner references, or has another controller by now.
            owner = {"kind": "SharedGPUJob", "name": meta["name"].rpartition("-")[0], "uid": ""}
        kind, name, attempt = owner["kind"], meta["name"], 0
        if kind == "SharedGPUJob":
            job, _, number = name.rpartition("-")
            attempt = int(number) if number.isdecimal() else 0
            if job != owner["name"] or name != f"{job}-{attempt}" or not attempt:
                return None
        elif kind != "GPUServer" or name != owner["name"]:
            return None
        return cls(
            uid=meta["uid"],
            # What stands in the job, too, or in many Pods, is kept once.
            name=intern(name),
            namespace=intern(meta["namespace"]),
            owner_kind=intern(kind),
            owner=intern(owner["name"]),
            owner_uid=intern(owner["uid"]),
            attempt=attempt,
            **_mutable(body),
        )


def requested_devices(body: Json) -> set[str]:
    """Return the resources of our GPUs that a Pod asks for."""
    containers = (body.get("spec") or {}).get("containers") or []
    limits = ((c.get("resources") or {}).get("limits") or {} for c in containers)
    return {name for entry in limits for name in entry if name.startswith(DEVICE_RESOURCE_PREFIX)}


def _mutable(body: Json) -> Json:
    """Read what changes during the life of a Pod."""
    meta = body["metadata"]
    return {
        "version": int(meta["resourceVersion"]),
        "node": intern((body.get("spec") or {}).get("nodeName") or ""),
        "deleting": bool(meta.get("deletionTimestamp")),
        "outcome": read_outcome(body.get("status") or {}),
        "startup": read_startup(body),
        "deletion_time": parse_time(meta["deletionTimestamp"])
        if meta.get("deletionTimestamp")
        else None,
        "grace": _grace(body),
    }


def _grace(body: Json) -> int:
    """Read how long a Pod has to terminate; the API server fills in its default of 30 s."""
    asked = (body.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
    return int(body["metadata"].get("deletionGracePeriodSeconds", asked))


_COMMON = frozenset({"cpu", "memory", "ephemeral-storage"})
_TOLD_APART = _GOING | frozenset(
    f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "unschedulable")
)
"""Taints that say once more what `NodeView.ready` and `NodeView.schedulable` say."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What of a node decides which Pods it takes, whatever runs there now."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    """Those that keep Pods away."""
    allocatable: Requests | None = None
    """What Pods may request of it in all; None where it does not say."""
    others: dict[str, int] = field(default_factory=dict)
    """Its other resources, by name; those that stand for GPUs are left out."""

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read it from a Node."""
        quantities = (body.get("status") or {}).get("allocatable") or {}
        amounts = {
            name: parse_amount(name, quantity)
            for name, quantity in quantities.items()
            if not is_gpu_resource(name)
        }
        return cls(
            labels=dict(body["metadata"].get("labels") or {}),
            taints=tuple(
                taint
                for taint in map(Taint.model_validate, (body.get("spec") or {}).get("taints") or ())
                if taint.repels and taint.key not in _TOLD_APART
            ),
            allocatable=requests_of(amounts) if amounts else None,
            others={name: value for name, value in amounts.items() if name not in _COMMON},
        )


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: whether Pods may start on it, and which."""

    name: str
    uid: str
    version: int
    ready: bool
    schedulable: bool
    info: NodeInfo = field(default_factory=NodeInfo)

    def like(self, other: "NodeView | None") -> bool:
        """Tell whether nothing has changed since, but what a node reports with each heartbeat."""
        return other is not None and (self.ready, self.schedulable, self.info) == (
            other.ready,
            other.schedulable,
            other.info,
        )

    def sharing(self, older: "NodeView | None") -> "NodeView":
        """Return it with the info of an older version where that is the same: once in memory."""
        return replace(self, info=older.info) if older and older.info == self.info else self

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.info.labels

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
            info=NodeInfo.parse(body),
            name=body["metadata"]["name"],
            uid=body["metadata"]["uid"],
            version=int(body["metadata"]["resourceVersion"]),
            ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
            schedulable=not (spec.get("unschedulable") or taints & _GOING),
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
