"""The fields of Pods, Nodes and Namespaces that are kept in memory."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from sys import intern
from typing import Any, Self

from partita.constants import ALLOCATION_GATE, ANNOTATION_TEMPLATE, GROUP
from partita.models.events import EventSubject
from partita.models.quantities import parse_amount
from partita.pods.gpu_operator import maintenance
from partita.pods.job_pod import is_gpu_resource
from partita.pods.node_rules import Taint
from partita.pods.outcome import PodOutcome, read_outcome
from partita.pods.own_claims import own_claim
from partita.pods.pod_status import read_time
from partita.pods.probe_pod import probe_name
from partita.pods.requests import Requests, requests_of
from partita.pods.startup import UNDERWAY, Startup, read_startup
from partita.pods.user_namespaces import has_user_namespaces
from partita.store.workload_pod import WorkloadPod

__all__ = ["NamespaceView", "NodeInfo", "NodeView", "PodView"]

Json = dict[str, Any]

_GOING = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints by which cluster-autoscaler (utils/taints) and Karpenter (pkg/apis/v1) announce that they
drain a node; neither of them cordons it."""


_WITHOUT_CLAIMS = WorkloadPod()


@dataclass(frozen=True, slots=True)
class PodView:
    """A Pod of a SharedGPUJob or a GPUServer, or a Pod with claims of any controller.

    A tenant can write labels, annotations and owner references of its own Pods. So a `PodView` is
    only a claim: `State` compares it with the owner before the Pod counts. Namespace, name and UID
    of a Pod never change, and its owner is read once, from the first version of the Pod.
    """

    uid: str
    name: str
    namespace: str
    version: int
    node: str
    deleting: bool
    outcome: PodOutcome
    owner_kind: str = ""
    """`SharedGPUJob` or `GPUServer`; empty for a Pod with claims."""
    owner: str = ""
    """Name of the job or the GPUServer; empty for a Pod with claims."""
    owner_uid: str = ""
    """UID of that owner; empty if the Pod has no reference to it."""
    attempt: int = 0
    """Number of the job's attempt, from the Pod's name; 0 for other Pods."""
    gates: tuple[str, ...] = ()
    """Names of its scheduling gates."""
    grace: int = 30
    """Termination grace period in seconds."""
    nominated_node: str = ""
    """The node on which kube-scheduler has preempted other Pods for it; empty once it is bound."""
    startup: Startup | None = None
    """The startup state; None once a main container has started."""
    deletion_time: datetime | None = None
    """The end of its grace period; None if it is not being deleted, or is removed right now."""
    template_hash: str = ""
    """Hash of what the operator has created it from; empty for Pods of others."""
    workload: WorkloadPod = _WITHOUT_CLAIMS
    """Its claims, and what they are resolved with; empty for the Pods of jobs and GPUServers."""

    @property
    def subject(self) -> EventSubject:
        """The Pod as what Events are about."""
        return EventSubject.pod(self.namespace, self.name, self.uid)

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of its ResourceClaims."""
        return tuple(c.claim for c in self.workload.claims if c.claim)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def alive(self) -> bool:
        """Whether its program may still run."""
        return not self.outcome.finished

    @property
    def not_started(self) -> bool:
        """Whether no container of its program has started, init containers included."""
        startup = self.startup
        return startup is not None and not (startup.running or startup.since)

    @property
    def gated(self) -> bool:
        """Whether it has the scheduling gate that is removed once its claim is allocated."""
        return ALLOCATION_GATE in self.gates

    @property
    def other_gates(self) -> tuple[str, ...]:
        """Its scheduling gates of other controllers, which have not admitted it yet."""
        return tuple(gate for gate in self.gates if gate != ALLOCATION_GATE)

    @property
    def stuck(self) -> str:
        """Why it does not start; empty if no obstacle is known."""
        waits = self.startup is not None and self.startup.reason not in UNDERWAY
        return self.startup.message if waits and self.startup else ""

    def removed(self) -> Self:
        """Return the Pod in the state that it has after its deletion."""
        return replace(self, deleting=True, outcome=self.outcome.removed())

    def updated(self, body: Json) -> Self:
        """Read a newer version of this Pod, but keep its owner."""
        workload = None if self.owner_kind else WorkloadPod.parse(body)
        return replace(self, workload=workload or self.workload, **_mutable(body))

    @classmethod
    def parse(cls, body: Json) -> Self | None:
        """Read a Pod; None if it does not claim to be one of Partita's.

        It is called for every Pod of the cluster, so for other Pods only owner references and
        claims are read.
        """
        meta = body["metadata"]
        owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
        if owner is None or not owner["apiVersion"].startswith(f"{GROUP}/"):
            if not own_claim(body):
                return cls._with_claims(body)
            # A job's Pod that has lost its owner references, or has another controller now.
            owner = {"kind": "SharedGPUJob", "name": meta["name"].rpartition("-")[0], "uid": ""}
        kind, name, attempt = owner["kind"], meta["name"], 0
        if kind == "SharedGPUJob":
            job, _, number = name.rpartition("-")
            attempt = int(number) if number.isdecimal() else 0
            if job != owner["name"] or name != f"{job}-{attempt}" or not attempt:
                return None
        elif kind != "GPUServer" or name not in {owner["name"], probe_name(owner["name"])}:
            return None
        return cls(
            uid=meta["uid"],
            # Strings that also occur in the job, or in many Pods, share one object in memory.
            name=intern(name),
            namespace=intern(meta["namespace"]),
            owner_kind=intern(kind),
            owner=intern(owner["name"]),
            owner_uid=intern(owner["uid"]),
            attempt=attempt,
            template_hash=intern((meta.get("annotations") or {}).get(ANNOTATION_TEMPLATE, "")),
            **_mutable(body),
        )

    @classmethod
    def _with_claims(cls, body: Json) -> Self | None:
        """Read a Pod of a controller that is not Partita's; None if it has no claims."""
        workload = WorkloadPod.parse(body)
        if workload is None:
            return None
        meta = body["metadata"]
        return cls(
            uid=meta["uid"],
            name=meta["name"],
            namespace=intern(meta["namespace"]),
            workload=workload,
            **_mutable(body),
        )


def _mutable(body: Json) -> Json:
    """Read the fields that change during the lifetime of a Pod."""
    meta, spec = body["metadata"], body.get("spec") or {}
    node = spec.get("nodeName") or ""
    nominated = (body.get("status") or {}).get("nominatedNodeName") or ""
    return {
        "version": int(meta["resourceVersion"]),
        "node": intern(node),
        "nominated_node": "" if node else intern(nominated),
        "gates": tuple(intern(gate["name"]) for gate in spec.get("schedulingGates") or ()),
        "deleting": bool(meta.get("deletionTimestamp")),
        "outcome": read_outcome(body.get("status") or {}),
        "startup": read_startup(body),
        "deletion_time": _deletion_time(meta),
        "grace": _grace(body),
    }


def _deletion_time(meta: Json) -> datetime | None:
    """Read when a Pod is killed.

    The API server removes a Pod without a grace period in two steps: it sets the period to 0, and
    deletes the Pod unless it has finalizers (`Store.updateForGracefulDeletionAndFinalizers` in
    k8s.io/apiserver). Nothing is gained by a reaction to the first step.
    """
    time = meta.get("deletionTimestamp")
    removed = meta.get("deletionGracePeriodSeconds") == 0 and not meta.get("finalizers")
    return read_time(time) if time and not removed else None


def _grace(body: Json) -> int:
    """Read the termination grace period of a Pod; the API server's default is 30 s."""
    asked = (body.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
    return int(body["metadata"].get("deletionGracePeriodSeconds", asked))


_COMMON = frozenset({"cpu", "memory", "ephemeral-storage"})
_KNOWN_OTHERWISE = _GOING | frozenset(
    f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "unschedulable")
)
"""Taints that repeat the information in `NodeView.ready` and `NodeView.schedulable`."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Properties of a node that determine which Pods can run there, independent of its load."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    """Taints that keep Pods away."""
    allocatable: Requests | None = None
    """Total amounts that Pods may request; None if the node does not report them."""
    others: dict[str, int] = field(default_factory=dict)
    """Its other resources by name, without those of GPUs."""
    user_namespaces: bool = False
    """Whether Pods can have user namespaces."""

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the properties from a Node."""
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
                if taint.repels and taint.key not in _KNOWN_OTHERWISE
            ),
            allocatable=requests_of(amounts) if amounts else None,
            others={name: value for name, value in amounts.items() if name not in _COMMON},
            user_namespaces=has_user_namespaces(body),
        )


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: whether Pods may start on it, and which Pods."""

    name: str
    uid: str = field(compare=False)
    version: int = field(compare=False)
    """Each heartbeat changes it."""
    ready: bool
    schedulable: bool
    info: NodeInfo = field(default_factory=NodeInfo)

    def sharing(self, older: "NodeView | None") -> "NodeView":
        """Return the view with the info object of an older version if equal, to save memory."""
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
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read a Namespace."""
        meta = body["metadata"]
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            version=int(meta["resourceVersion"]),
            labels=dict(meta.get("labels") or {}),
        )
