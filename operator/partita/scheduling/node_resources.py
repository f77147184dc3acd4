"""Free CPU, memory and ephemeral storage of nodes.

The free amount is the node's allocatable amount minus the requests of all Pods bound to the node,
and of Pods with an allocated GPU on the node that are not bound yet.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from partita.models import Allocation, GPUServer
from partita.pods.requests import NOTHING, Requests
from partita.store.state import State
from partita_policies import types as policy

__all__ = ["allocatable_of", "left_on", "offered", "requested_by"]


def requested_by(entry: Allocation, state: State) -> tuple[Requests, bool]:
    """Return the node resources that an allocated Pod requests, and whether it is bound."""
    pod = state.pods.get(entry.pod_uid)
    if pod is None:
        return NOTHING, False
    return state.usage.of(pod.uid) if pod.alive else NOTHING, bool(pod.node)


def allocatable_of(nodes: Iterable[str], state: State) -> dict[str, Requests]:
    """Return the allocatable amounts of nodes; nodes that do not report them are left out."""
    found = ((name, state.nodes.get(name)) for name in nodes)
    known = ((name, node.info.allocatable) for name, node in found if node is not None)
    return {name: amounts for name, amounts in known if amounts is not None}


def left_on(
    nodes: Iterable[str], state: State, released: Mapping[str, Collection[str]]
) -> dict[str, Requests]:
    """Return the free amounts of nodes; negative if a node is overcommitted.

    Parameters
    ----------
    released
        UIDs of claims whose allocations are being released, by GPUServer. They do not count.
    """
    result: dict[str, Requests] = {}
    totals = allocatable_of(nodes, state)
    servers: dict[str, list[GPUServer]] = {name: [] for name in totals}
    for server in state.servers.values():
        if server.status.node in totals:
            servers[server.status.node].append(server)
    for name, total in totals.items():
        taken = [state.usage.on(name)]
        seen: set[str] = set()
        for server in servers[name]:
            gone = released.get(server.metadata.name, ())
            for uid, allocation in server.status.allocations.items():
                if uid in seen or uid in gone:
                    continue
                seen.add(uid)
                requests, counted = requested_by(allocation, state)
                if not counted:
                    taken.append(requests)
        result[name] = Requests(
            *(
                amount - sum(each)
                for amount, each in zip(total, zip(*taken, strict=True), strict=True)
            )
        )
    return result


def offered(left: Mapping[str, Requests], gpus: Sequence[policy.GPU]) -> tuple[policy.Node, ...]:
    """Return the nodes for a policy: the free amounts plus those of jobs on these GPUs."""
    holders: dict[str, dict[str, policy.RunningJob]] = {}
    for gpu in gpus:
        holders.setdefault(gpu.node, {}).update((b.job, b) for b in gpu.running)
    result = []
    for name, amounts in left.items():
        held = holders.get(name, {}).values()
        result.append(
            policy.Node(
                name,
                max(0, amounts.cpu + sum(b.cpu for b in held)),
                max(0, amounts.memory + sum(b.host_memory for b in held)),
                max(0, amounts.storage + sum(b.host_storage for b in held)),
            )
        )
    return tuple(result)
