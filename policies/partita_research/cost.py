"""Compares the cost of the same jobs under different policies, at prices of GPU instances.

A policy that never shares a GPU pays for a whole instance. A policy that shares GPUs may rent a
part of a larger instance and pay for that part only. J. Oh compares costs in this way in "A Job
Placement Using Reinforcement Learning in GPU Virtualization Environment" (2019), section V.3.4.
Prices are per hour, billed by the second. Assumed: jobs run as fast on the instances as on the
simulated GPUs.

Prices are read from YAML::

    instances:
      - {name: g4dn.xlarge, gpus: 1, vcpus: 4, memory: 16, dollars: 0.526, source: my contract}
    sharing:               # optional
      - {name: halves, alone: g4dn.xlarge, shared: g4dn.4xlarge, sharers: 2}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from partita_research.simulator.reading import Entry, InputError, parse, read
from partita_research.simulator.results import Result, SimulatedOutcome

__all__ = [
    "Bill",
    "InputError",
    "Instance",
    "Prices",
    "SharedRental",
    "bill",
    "published_prices",
    "read_prices",
    "saving",
    "shares",
]

_HOUR = 3600.0
_TOUCH = 1e-6
"""Seconds by which two jobs may overlap without counting as sharing: rounding."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine with GPUs for rent."""

    name: str
    gpus: int
    vcpus: float
    memory: float
    """GB."""
    dollars: float
    """Per hour."""
    source: str
    """Source of the price."""
    gpu: str = ""
    """GPU product; empty if not stated."""
    gpu_memory: float | None = None
    """GB of each GPU."""


@dataclass(frozen=True, slots=True)
class SharedRental:
    """A part of a shared instance, compared with a whole smaller instance."""

    name: str
    alone: Instance
    shared: Instance
    sharers: int
    """Number of tenants of the instance; each pays an equal part."""
    source: str = ""

    @property
    def part(self) -> float:
        """Dollars per hour of one part."""
        return self.shared.dollars / self.sharers


@dataclass(frozen=True, slots=True)
class Prices:
    """A list of prices."""

    instances: Mapping[str, Instance]
    """By name."""
    rentals: tuple[SharedRental, ...] = ()


@dataclass(frozen=True, slots=True)
class Bill:
    """Cost of the jobs under one policy."""

    policy: str
    seconds: float
    """Makespan."""
    whole: bool
    """Whether all jobs finished; if not, the costs are those of fewer jobs."""
    shares: bool
    """Whether jobs shared a GPU."""
    dollars: Mapping[str, float]
    """Cost if whole instances are rented, by instance."""
    rentals: Mapping[str, float]
    """By the name of the `SharedRental`."""


def read_prices(path: Path) -> Prices:
    """Read a list of prices.

    Raises
    ------
    InputError
        The content is invalid; the message has the file, the line and what was expected.
    """
    return _prices(read(path))


@cache
def published_prices() -> Prices:
    """Return the prices of the study's table 5 (`data/prices.yaml`)."""
    text = (files("partita_research") / "data" / "prices.yaml").read_text(encoding="utf-8")
    return _prices(parse(text, "prices.yaml"))


def saving(dollars: float, reference: float) -> float:
    """Return by how many percent a cost is below a reference; negative if it is above."""
    return 100 * (1 - dollars / reference) if reference else 0.0


def bill(policy: str, results: Sequence[Result], prices: Prices) -> Bill:
    """Return the cost of the mean of several simulations of a workload under one policy.

    For each simulated GPU a GPU is rented for the whole makespan: on whole instances, or as a part
    of a shared instance.
    """
    makespan, gpus = fmean(result.makespan for result in results), len(results[0].gpus)
    hours, sharing = makespan / _HOUR, any(shares(result) for result in results)
    jobs = [job for result in results for job in result.jobs]
    return Bill(
        policy,
        makespan,
        whole=all(job.outcome is SimulatedOutcome.FINISHED for job in jobs),
        shares=sharing,
        dollars=MappingProxyType(
            {instance.name: hours * _rent(instance, gpus) for instance in prices.instances.values()}
        ),
        rentals=MappingProxyType(
            {
                one.name: hours
                * (_rent(one.shared, gpus) / one.sharers if sharing else _rent(one.alone, gpus))
                for one in prices.rentals
            }
        ),
    )


def shares(result: Result) -> bool:
    """Return whether two jobs were ever on one GPU at the same time."""
    ends: dict[str, float] = {}
    for attempt in sorted(result.attempts, key=lambda one: (one.start, one.end)):
        for gpu in attempt.gpus:
            if attempt.start < ends.get(gpu, 0.0) - _TOUCH:
                return True
            ends[gpu] = max(ends.get(gpu, 0.0), attempt.end)
    return False


def _rent(instance: Instance, gpus: int) -> float:
    """Return dollars per hour for this number of GPUs on whole instances."""
    return instance.dollars * -(-gpus // instance.gpus)


def _prices(document: Entry) -> Prices:
    fields = document.fields(["instances"], ["sharing"])
    instances: dict[str, Instance] = {}
    for entry in fields["instances"].items("instances"):
        instance = _instance(entry)
        if instance.name in instances:
            raise entry.error(f"{instance.name}: expected a name that no other instance has")
        instances[instance.name] = instance
    rentals: dict[str, SharedRental] = {}
    for entry in fields["sharing"].items("sharing") if "sharing" in fields else ():
        one = _rental(entry, instances)
        if one.name in rentals:
            raise entry.error(f"{one.name}: expected a name that no other has")
        rentals[one.name] = one
    return Prices(MappingProxyType(instances), tuple(rentals.values()))


def _instance(entry: Entry) -> Instance:
    required = ["name", "gpus", "vcpus", "memory", "dollars", "source"]
    fields = entry.fields(required, ["gpu", "gpu_memory"])
    return Instance(
        name=fields["name"].text(),
        gpus=fields["gpus"].whole(),
        vcpus=fields["vcpus"].number(above=True),
        memory=fields["memory"].number(above=True),
        dollars=fields["dollars"].number(above=True),
        source=fields["source"].text(),
        gpu=fields["gpu"].text() if "gpu" in fields else "",
        gpu_memory=fields["gpu_memory"].number(above=True) if "gpu_memory" in fields else None,
    )


def _rental(entry: Entry, instances: Mapping[str, Instance]) -> SharedRental:
    fields = entry.fields(["name", "alone", "shared", "sharers"], ["source"])
    named: dict[str, Instance] = {}
    for role in ("alone", "shared"):
        name = fields[role].text()
        if name not in instances:
            known = ", ".join(instances)
            raise fields[role].error(f"{name}: unknown; expected one of {known}")
        named[role] = instances[name]
    return SharedRental(
        fields["name"].text(),
        **named,
        sharers=fields["sharers"].whole(),
        source=fields["source"].text() if "source" in fields else "",
    )
