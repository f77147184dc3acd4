"""Nodes of a partition that could run a job's Pod if they were empty.

Free resources are computed in `partita.scheduling.node_resources`. The obstacles found here are
removed only by a change of a template, a node or the partition.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from partita.models.partition import Toleration
from partita.pods.node_requirements import Needs
from partita.pods.node_rules import NodeRules, is_passing
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.store.views import NodeInfo

__all__ = ["Host", "Largest", "NodeFit", "fit", "format_amount"]

_CAUSES_TOLD = 3
"""Maximum number of causes in a message. The most frequent ones are given."""


@dataclass(frozen=True, slots=True)
class Host:
    """A node with GPUs of a partition."""

    name: str
    info: NodeInfo | None = None
    """None if its Node is unknown: then any Pod is assumed to fit."""
    memory: int = 0
    """Allocatable bytes of its largest GPU."""
    gpus: int = 0
    """Number of the partition's GPUs on it."""
    arriving: bool = False
    """Whether it has a new GPU whose size is not reported yet."""
    clients: int = 0
    """Most MPS clients that a GPU serves; 0 where that is not known, and without MPS."""
    context_memory: int = 0
    """Bytes that each process of a job takes in addition to the memory of the job."""
    protocol: int = 2
    """Newest protocol of MPS on its GPUs."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest capacity of any GPU, and of any node, of a partition."""

    memory: int = 0
    """Allocatable bytes of the largest GPU."""
    gpus_on_node: int = 0
    """Maximum number of GPUs of the partition on one node."""
    arriving: bool = False
    """Whether there is a new GPU whose size is not reported yet. It may be the largest."""
    clients: int = 0
    """Most MPS clients that a GPU serves; 0 where that is not known, and without MPS."""
    context_memory: int = 0
    """Bytes that each process of a job takes in addition to the memory of the job."""
    hosts: tuple[Host, ...] = ()
    """The nodes, sorted by name."""
    tolerations: tuple[Toleration, ...] = ()
    """Tolerations that the partition adds to each Pod."""
    fits: WeakKeyDictionary[Needs, "NodeFit | WaitingReason"] = field(
        default_factory=WeakKeyDictionary, compare=False, repr=False
    )
    """Cached results of `fit`."""

    @classmethod
    def of(cls, hosts: Iterable[Host], tolerations: tuple[Toleration, ...] = ()) -> "Largest":
        """Return the largest capacity of some nodes."""
        hosts = tuple(sorted(hosts, key=lambda host: host.name))
        return cls(
            memory=max((host.memory for host in hosts), default=0),
            gpus_on_node=max((host.gpus for host in hosts), default=0),
            arriving=any(host.arriving for host in hosts),
            clients=max((host.clients for host in hosts), default=0),
            context_memory=max((host.context_memory for host in hosts), default=0),
            hosts=hosts,
            tolerations=tolerations,
        )


@dataclass(frozen=True, slots=True)
class NodeFit:
    """The nodes that could run a Pod."""

    largest: Largest
    """The largest capacity of these nodes."""
    nodes: frozenset[str] = frozenset()
    """Their names; empty for all nodes of the partition."""


def fit(needs: Needs, largest: Largest, partition: str) -> NodeFit | WaitingReason:
    """Find the nodes that could run a Pod.

    Parameters
    ----------
    partition
        The partition's name, for the message.

    Returns
    -------
    Fit or WaitingReason
        The nodes, or why none can run it: `NeverFits` if only a change of configuration helps.
    """
    found = largest.fits.get(needs)
    if found is None:
        found = largest.fits[needs] = _fit(needs, largest, partition)
    return found


def format_amount(resource: str, value: int, *, short: bool = False) -> str:
    """Format an amount of a node's resource for messages: `2.5 CPUs`, `4.0 GiB of memory`.

    Parameters
    ----------
    short
        Leave out the resource: `2.5`, `4.0 GiB`.
    """
    number, of = f"{value}", f" of {resource}"
    if resource == "cpu":
        number, of = f"{value / 1000:g}", " CPUs"
    elif resource in _BYTES:
        number, of = gib(value), f" of {_BYTES[resource]}"
    return number if short else number + of


_BYTES = {"memory": "memory", "storage": "ephemeral storage"}


@dataclass(frozen=True, slots=True)
class _Lack:
    """Why a Pod cannot run on a node."""

    cause: str
    has: tuple[str, int] | None = None
    """The insufficient resource, and its amount on the node."""
    passes: bool = False
    """Whether the obstacle disappears without a user's action."""


def _fit(needs: Needs, largest: Largest, partition: str) -> NodeFit | WaitingReason:
    if not largest.hosts:
        return NodeFit(largest)
    rules = needs.rules.tolerating(largest.tolerations)
    lacks = [_lack(needs, rules, host) for host in largest.hosts]
    capable = [host for host, lack in zip(largest.hosts, lacks, strict=True) if lack is None]
    if len(capable) == len(largest.hosts):
        return NodeFit(largest)
    if capable:
        return NodeFit(
            Largest.of(capable, largest.tolerations),
            frozenset(host.name for host in capable),
        )
    said = _sum_up([lack for lack in lacks if lack is not None])
    message = f"no node of {partition} can run its Pod: {said}"
    if largest.arriving or any(lack is not None and lack.passes for lack in lacks):
        return WaitingReason(Reason.INSUFFICIENT_NODE, message)
    return WaitingReason(
        Reason.NEVER_FITS, f"{message}: change its template, or submit it to another partition"
    )


def _lack(needs: Needs, rules: NodeRules, host: Host) -> _Lack | None:
    """Return why a Pod cannot run on a node; None if it can."""
    info = host.info
    if info is None:
        return None
    if unmet := rules.unmet(host.name, info.labels):
        return _Lack(unmet)
    if info.allocatable is not None:
        has = info.others | info.allocatable._asdict()
        for resource, amount in (*needs.requests._asdict().items(), *needs.others):
            if amount > has.get(resource, 0):
                return _Lack(format_amount(resource, amount), (resource, has.get(resource, 0)))
    if host.protocol == 3 and needs.root and (why := _no_user_namespace(needs, info)):
        return _Lack(why)
    if repelled := rules.untolerated(info.taints):
        taint = next((t for t in repelled if not is_passing(t)), repelled[0])
        return _Lack(f"have the taint {taint}, which it does not tolerate", None, is_passing(taint))
    return None


def _no_user_namespace(needs: Needs, info: NodeInfo) -> str:
    """Return why a Pod that may run as root cannot have a user namespace; empty if it can.

    With MPS protocol 3 root could change the limits of all jobs on the GPU.
    """
    if needs.host_namespaces:
        because = f"the Pod sets {needs.host_namespaces}"
    elif info.user_namespaces:
        return ""
    else:
        because = "they support none"
    return (
        f"have MPS protocol 3, with which {needs.root} may run as root only in a user namespace, "
        f"and {because}: set runAsNonRoot: true and allowPrivilegeEscalation: false"
    )


def _sum_up(lacks: Sequence[_Lack]) -> str:
    """Return a message with the number of nodes for each cause."""
    by_cause: defaultdict[str, list[_Lack]] = defaultdict(list)
    for lack in lacks:
        by_cause[lack.cause].append(lack)
    ordered = sorted(by_cause.items(), key=lambda item: -len(item[1]))
    parts = []
    for cause, alike in ordered[:_CAUSES_TOLD]:
        nodes = f"{len(alike)} of {len(lacks)} nodes"
        has = [lack.has for lack in alike if lack.has is not None]
        if has:
            most = format_amount(*max(has, key=lambda each: each[1]), short=True)
            parts.append(f"it needs {cause}, and {nodes} have at most {most}")
        else:
            parts.append(f"{nodes} {cause}")
    return "; ".join(parts)
