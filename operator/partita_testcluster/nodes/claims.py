"""The ResourceClaims, and the Pods that name them, as the scheduler and the kubelets see them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from partita.agent.dra.device import allocated_devices
from partita.models.device_class import names_device_class
from partita_testcluster.nodes.simulated_pods import SimulatedPod

__all__ = ["KnownClaims", "SimulatedClaim"]

Body = Mapping[str, Any]


class SimulatedClaim:
    """The properties of a ResourceClaim that scheduler and kubelets need.

    Attributes
    ----------
    body
        The claim as the API server has it.
    version
        Its resource version.
    deleted
        Whether it is being deleted.
    ours
        Whether it names a device class of Partita.
    allocated
        Whether it has an allocation.
    nodes
        The node selector terms of its allocation; empty if it can be used on all nodes.
    reserved_for
        The Pods that may use it.
    """

    def __init__(self, body: Body) -> None:
        meta, status = body["metadata"], body.get("status") or {}
        allocation = status.get("allocation") or {}
        self.body = body
        self.uid: str = meta["uid"]
        self.name: str = meta["name"]
        self.namespace: str = meta["namespace"]
        self.version: str = meta["resourceVersion"]
        self.deleted = "deletionTimestamp" in meta
        self.ours = names_device_class(body["spec"])
        self.allocated = bool(allocation)
        terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms")
        self.nodes: Sequence[Body] = terms or ()
        self.reserved_for: Sequence[Body] = status.get("reservedFor") or ()

    @property
    def servers(self) -> Sequence[str]:
        """The GPUServers of its allocation.

        Raises
        ------
        PrepareError
            It is not allocated, or by somebody else.
        """
        return list(allocated_devices(self.body))

    def reserved_for_pod(self, uid: str) -> bool:
        """Return whether a Pod may use it."""
        return any(user["uid"] == uid for user in self.reserved_for)


class KnownClaims:
    """All claims, and all Pods with claims."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], SimulatedClaim] = {}
        self._users: defaultdict[tuple[str, str], dict[str, SimulatedPod]] = defaultdict(dict)
        self._names: dict[str, list[tuple[str, str]]] = {}

    def observe(self, body: Body, *, deleted: bool = False) -> tuple[SimulatedPod, ...]:
        """Handle a change of a claim; return the Pods that name it."""
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        if deleted:
            self._claims.pop(key, None)
        else:
            self._claims[key] = SimulatedClaim(body)
        return tuple(self._users.get(key, {}).values())

    def written(self, body: Body) -> None:
        """Take the answer to a write, unless the watch has already reported something newer."""
        known = self._claims.get((body["metadata"]["namespace"], body["metadata"]["name"]))
        claim = SimulatedClaim(body)
        if known and known.uid == claim.uid and int(known.version) < int(claim.version):
            self.observe(body)

    def observe_pod(self, pod: SimulatedPod) -> None:
        """Remember which claims a Pod names."""
        self.forget_pod(pod.uid)
        keys = [(pod.namespace, name) for name in pod.claim_names if name]
        for key in keys:
            self._users[key][pod.uid] = pod
        if keys:
            self._names[pod.uid] = keys

    def forget_pod(self, uid: str) -> None:
        """Forget a Pod."""
        for key in self._names.pop(uid, ()):
            del self._users[key][uid]
            if not self._users[key]:
                del self._users[key]

    def of(self, pod: SimulatedPod) -> list[SimulatedClaim]:
        """Return the existing claims of a Pod."""
        keys = ((pod.namespace, name) for name in pod.claim_names)
        return [self._claims[key] for key in keys if key in self._claims]

    def complete(self, pod: SimulatedPod) -> bool:
        """Return whether all claims of a Pod exist."""
        return len(self.of(pod)) == len(pod.claim_names)
