"""What share of a partition each namespace had lately, by the records of usage. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import log

from partita.accounting.daily_usage import DailyUsage
from partita.models import GPUPartition
from partita.store.state import State

__all__ = ["past_shares"]


def past_shares(
    days: Iterable[DailyUsage], partition: GPUPartition, state: State, now: datetime
) -> Mapping[str, float]:
    """Return the mean dominant share that each namespace had lately; empty if none counts.

    Of a day that is over, half counts after `fairness.halfLife`, a quarter after twice this time,
    and so on, as in the multifactor priority of Slurm
    (https://slurm.schedmd.com/priority_multifactor.html, "Fair-share Factor"). So a namespace that
    had the same share all the time has this share.
    """
    name, half_life = partition.metadata.name, partition.spec.fairness.half_life
    if not half_life:
        return {}
    gpus = sum(bool(server.status.memory) for server in state.servers_of(name))
    window = max(1, gpus) * half_life / log(2)
    shares: defaultdict[str, float] = defaultdict(float)
    for day in days:
        weight = 0.5 ** (max(0.0, (now - day.until).total_seconds()) / half_life) / window
        for key, amounts in day.amounts.items():
            if key.partition == name:
                shares[key.namespace] += weight * amounts.dominant_seconds_allocated
    return shares
