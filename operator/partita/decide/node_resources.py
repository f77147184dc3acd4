"""What is left of the nodes' own resources: CPU, memory and ephemeral storage.

Of a node's allocatable amounts there is left what neither a Pod that is bound to it requests,
whoever made it, nor a job for which a GPU of the node is allocated and whose Pod is not bound yet.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from partita.informer.state import State
from partita.pods.node_requirements import read_needs
from partita.pods.requests import NOTHING, Requests
from partita_policies import types as policy

__all__ = ["allocatable_of", "left_on", "offered", "requested_by"]


def requested_by(uid: str, attempt: int, state: State) -> tuple[Requests, bool]:
    """Return what an allocated job requests of its node, and whether a Pod there counts it already.

    Before its Pod exists this follows from its template: what admission adds is not known yet.
    """
    pod = next((pod for pod in state.pods_of(uid) if pod.attempt == attempt), None)
    if pod is not None:
        requests = state.usage.of(pod.uid) if pod.alive else NOTHING
        return requests, bool(pod.node)
    job = state.jobs.get(uid)
    return (read_needs(job.spec.template).requests if job else NOTHING), False


def allocatable_of(nodes: Iterable[str], state: State) -> dict[str, Requests]:
    """Return what Pods may request of nodes in all; nodes that do not say are left out."""
    found = ((name, state.nodes.get(name)) for name in nodes)
    known = ((name, node.info.allocatable) for name, node in found if node is not None)
    return {name: amounts for name, amounts in known if amounts is not None}


def left_on(
    nodes: Iterable[str], state: State, released: Mapping[str, Collection[str]]
) -> dict[str, Requests]:
    """Return what is left of nodes, below zero where more is taken than there is.

    Parameters
    ----------
    released
        UIDs of jobs whose allocations are being released, by GPUServer: they do not count.
    """
    result, servers = {}, defaultdict(list)
    for server in state.servers.values():
        servers[server.status.node].append(server)
    for name, total in allocatable_of(nodes, state).items():
        taken = [state.usage.on(name)]
        seen: set[str] = set()
        for server in servers[name]:
            gone = released.get(server.metadata.name, ())
            for uid, allocation in server.status.allocations.items():
                if uid in seen or uid in gone:
                    continue
                seen.add(uid)
                requests, counted = requested_by(uid, allocation.attempt, state)
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
    """Return nodes as a policy sees them: what is left, and what is allocated on these GPUs."""
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
