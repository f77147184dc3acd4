"""Which nodes of a partition could run a job's Pod, were nothing else there.

What is free just now is counted elsewhere (`scheduling.nodes`): here is what only a change of a
template, a node or the partition helps.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from partita.informer.views import NodeInfo
from partita.models.partition import Toleration
from partita.pods.node_requirements import Needs
from partita.pods.node_rules import NodeRules, is_passing
from partita.reconcile.reasons import Reason, Why, gib

__all__ = ["Host", "Largest", "NodeFit", "fit", "format_amount"]

_CAUSES_TOLD = 3
"""Causes in one message: the most frequent ones."""
_REMEMBERED = 1024
"""Answers that are kept for the nodes as they are: one for each different template."""


@dataclass(frozen=True, slots=True)
class Host:
    """A node on which GPUs of a partition stand."""

    name: str
    info: NodeInfo | None = None
    """None where its Node is not known: then nothing is held against it."""
    memory: int = 0
    """Allocatable bytes of its largest GPU."""
    gpus: int = 0
    """How many of the partition's GPUs it has."""
    arriving: bool = False
    """A GPU has come that has not yet said how large it is."""
    clients: int = 0
    """Most MPS clients that a GPU serves; 0 where that is not known, and without MPS."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The most that any ready GPU, or node, of a partition could ever give."""

    memory: int = 0
    """Allocatable bytes of the largest GPU."""
    gpus_on_node: int = 0
    """Most GPUs of the partition on one node."""
    arriving: bool = False
    """A GPU has come that has not yet said how large it is: perhaps the largest."""
    clients: int = 0
    """Most MPS clients that a GPU serves; 0 where that is not known, and without MPS."""
    hosts: tuple[Host, ...] = ()
    """The nodes, by name."""
    tolerations: tuple[Toleration, ...] = ()
    """What the partition adds to the tolerations of each Pod."""
    fits: dict[Needs, "NodeFit | Why"] = field(default_factory=dict, compare=False, repr=False)
    """What was found so far, by what was asked."""

    @classmethod
    def of(cls, hosts: Iterable[Host], tolerations: tuple[Toleration, ...] = ()) -> "Largest":
        """Sum up nodes."""
        hosts = tuple(sorted(hosts, key=lambda host: host.name))
        return cls(
            memory=max((host.memory for host in hosts), default=0),
            gpus_on_node=max((host.gpus for host in hosts), default=0),
            arriving=any(host.arriving for host in hosts),
            clients=max((host.clients for host in hosts), default=0),
            hosts=hosts,
            tolerations=tolerations,
        )


@dataclass(frozen=True, slots=True)
class NodeFit:
    """The nodes that could run a Pod."""

    largest: Largest
    """The most that these could give."""
    nodes: frozenset[str] = frozenset()
    """Their names; empty: all of the partition's."""


def fit(needs: Needs, largest: Largest, partition: str) -> NodeFit | Why:
    """Find the nodes that could run a Pod.

    Parameters
    ----------
    partition
        Its name, for the message.

    Returns
    -------
    Fit or Why
        Why none of them can: `NeverFits` where that lasts until somebody changes something.
    """
    found = largest.fits.get(needs)
    if found is None:
        if len(largest.fits) >= _REMEMBERED:
            largest.fits.clear()
        found = largest.fits[needs] = _fit(needs, largest, partition)
    return found


def format_amount(resource: str, value: int, *, short: bool = False) -> str:
    """Write an amount of a node's resource for people: `2.5 CPUs`, `4.0 GiB of memory`.

    Parameters
    ----------
    short
        Leave out of what: `2.5`, `4.0 GiB`.
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
    """What keeps a Pod from a node."""

    cause: str
    has: tuple[str, int] | None = None
    """Resource and amount that the node has of what it has too little of."""
    passes: bool = False
    """It ends without anybody's doing."""


def _fit(needs: Needs, largest: Largest, partition: str) -> NodeFit | Why:
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
        return Why(Reason.INSUFFICIENT_NODE, message)
    return Why(
        Reason.NEVER_FITS, f"{message}: change its template, or submit it to another partition"
    )


def _lack(needs: Needs, rules: NodeRules, host: Host) -> _Lack | None:
    """Say what keeps a Pod from a node; None when nothing does."""
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
    if repelled := rules.untolerated(info.taints):
        taint = next((t for t in repelled if not is_passing(t)), repelled[0])
        return _Lack(f"have the taint {taint}, which it does not tolerate", None, is_passing(taint))
    return None


def _sum_up(lacks: Sequence[_Lack]) -> str:
    """Count nodes by what they lack."""
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
