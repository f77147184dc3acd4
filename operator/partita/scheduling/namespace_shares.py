"""What share of a partition each namespace has, by which the queue is ordered (`queue_order`)."""

from typing import NamedTuple

from partita.models import GPUPartition
from partita.scheduling.ledger import Held, totals
from partita.scheduling.snapshot import capacity_of_server
from partita.store.state import State
from partita_policies.amounts import DominantShare, GPUAmounts, share_of, total_of

__all__ = ["NamespaceShare", "namespace_shares"]


class NamespaceShare(NamedTuple):
    """What a namespace has of a partition."""

    held: Held
    capacity: GPUAmounts
    """What the GPUs of the partition have."""

    @property
    def dominant(self) -> DominantShare:
        """The largest of its shares."""
        return share_of(self.held.amounts, self.capacity)


def namespace_shares(partition: GPUPartition, state: State) -> dict[str, NamespaceShare]:
    """Return the share of each namespace that has an allocation or a quota."""
    # The console cannot tell whether a GPU's node is ready, so all count.
    servers = [s for s in state.servers_of(partition.metadata.name) if s.status.memory]
    capacity = total_of(capacity_of_server(server, partition) for server in servers)
    held = totals(servers, {})
    names = {*held, *(quota.namespace for quota in partition.spec.quotas)}
    return {name: NamespaceShare(held.get(name, Held()), capacity) for name in sorted(names)}
