"""What the same jobs cost under different policies, at the prices of instances with a GPU.

A policy that keeps jobs apart needs an instance for itself; one that shares can do with a part of
a larger instance, and pays that part. This is the reckoning of J. Oh, "A Job Placement Using
Reinforcement Learning in GPU Virtualization Environment" (2019), section V.3.4. Prices are an
hour's, billed by the second. The jobs are taken to run as fast there as where they were simulated.

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
from types import MappingProxyType

from partita_research.simulator.reading import Entry, InputError, parse, read
from partita_research.simulator.results import Result, SimulatedOutcome
from partita_research.simulator.study import study

__all__ = [
    "Bill",
    "InputError",
    "Instance",
    "Prices",
    "Reckoning",
    "StudyCost",
    "bill",
    "published_prices",
    "read_prices",
    "saving",
    "shares",
    "study_costs",
    "study_notes",
]

_HOUR = 3600.0
_TOUCH = 1e-6
"""Seconds by which two jobs may overlap without sharing: rounding."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine that one can rent."""

    name: str
    gpus: int
    vcpus: float
    memory: float
    """GB."""
    dollars: float
    """An hour."""
    source: str
    """Where the price is from."""
    gpu: str = ""
    """Its GPU product; empty when not stated."""
    gpu_memory: float | None = None
    """GB of each of its GPUs."""


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What those who share pay, and those who do not."""

    name: str
    alone: Instance
    shared: Instance
    sharers: int
    """They pay a part each of the shared instance."""
    source: str = ""

    @property
    def part(self) -> float:
        """Dollars an hour of one who shares."""
        return self.shared.dollars / self.sharers


@dataclass(frozen=True, slots=True)
class Prices:
    """A list of prices."""

    instances: Mapping[str, Instance]
    """By name."""
    reckonings: tuple[Reckoning, ...] = ()


@dataclass(frozen=True, slots=True)
class Bill:
    """What the jobs cost under one policy."""

    policy: str
    seconds: float
    """Makespan."""
    whole: bool
    """Whether all jobs finished: else the figures are those of fewer jobs."""
    shares: bool
    """Whether jobs shared a GPU."""
    dollars: Mapping[str, float]
    """By instance, where all of it is paid."""
    reckoned: Mapping[str, float]
    """By reckoning."""


@dataclass(frozen=True, slots=True)
class StudyCost:
    """One saving of the study, and what follows from its own figures."""

    reckoning: Reckoning
    published: float
    """Percent."""
    where: str
    implied: float
    """Seconds that SJF takes if the published saving is right."""
    recomputed: float
    """Percent, with one time of SJF for all the savings: the mean of the implied, in seconds."""
    from_totals: float
    """Percent, with the time of SJF that its other figures give."""


def read_prices(path: Path) -> Prices:
    """Read a list of prices.

    Raises
    ------
    InputError
        Something in it is wrong: file, line, and what was expected.
    """
    return _prices(read(path))


@cache
def published_prices() -> Prices:
    """Return the prices of the study's table 5 (`data/prices.yaml`)."""
    text = (files("partita_research") / "data" / "prices.yaml").read_text(encoding="utf-8")
    return _prices(parse(text, "prices.yaml"))


def saving(dollars: float, reference: float) -> float:
    """Return how much less this is than a reference, percent; below 0 when it is more."""
    return 100 * (1 - dollars / reference) if reference else 0.0


def bill(policy: str, result: Result, prices: Prices) -> Bill:
    """Price what came of a simulation.

    For each GPU that was simulated a GPU of an instance is rented, for the whole makespan, on
    whole instances; of a shared instance a part for each.
    """
    hours, gpus = result.makespan / _HOUR, len(result.gpus)
    sharing = shares(result)
    return Bill(
        policy,
        result.makespan,
        whole=all(job.outcome is SimulatedOutcome.FINISHED for job in result.jobs),
        shares=sharing,
        dollars=MappingProxyType(
            {instance.name: hours * _rent(instance, gpus) for instance in prices.instances.values()}
        ),
        reckoned=MappingProxyType(
            {
                one.name: hours
                * (_rent(one.shared, gpus) / one.sharers if sharing else _rent(one.alone, gpus))
                for one in prices.reckonings
            }
        ),
    )


def shares(result: Result) -> bool:
    """Say whether two jobs were ever on one GPU at once."""
    ends: dict[str, float] = {}
    for attempt in sorted(result.attempts, key=lambda one: (one.start, one.end)):
        for gpu in attempt.gpus:
            if attempt.start < ends.get(gpu, 0.0) - _TOUCH:
                return True
            ends[gpu] = max(ends.get(gpu, 0.0), attempt.end)
    return False


@cache
def study_costs() -> tuple[StudyCost, ...]:
    """Return the study's cost table (its figure 17), as published and as it follows.

    Its workload is `random`: SJF alone on an instance against DqnGPU on a part of a shared one.
    """
    known = study()
    ours, theirs = (_total(policy) for policy in ("dqn", "sjf"))
    reckonings = {one.name: one for one in published_prices().reckonings}
    implied = {
        one.name: reckonings[one.name].part
        * ours
        / (reckonings[one.name].alone.dollars * (1 - one.percent / 100))
        for one in known.savings
    }
    mean = round(sum(implied.values()) / len(implied))
    return tuple(
        StudyCost(
            reckoning=reckonings[one.name],
            published=one.percent,
            where=one.where,
            implied=implied[one.name],
            recomputed=_study_saving(reckonings[one.name], ours, mean),
            from_totals=_study_saving(reckonings[one.name], ours, theirs),
        )
        for one in known.savings
    )


def _study_saving(reckoning: Reckoning, shared: float, alone: float) -> float:
    return saving(reckoning.part * shared, reckoning.alone.dollars * alone)


def _total(policy: str) -> float:
    found = study().result("random", policy, "makespan")
    if found is None:
        raise LookupError(f"the study's data has no makespan of random under {policy}")
    return found.value


def _rent(instance: Instance, gpus: int) -> float:
    """Return dollars an hour for so many GPUs, on whole instances."""
    return instance.dollars * -(-gpus // instance.gpus)


def _prices(document: Entry) -> Prices:
    fields = document.fields(["instances"], ["sharing"])
    instances: dict[str, Instance] = {}
    for entry in fields["instances"].items("instances"):
        instance = _instance(entry)
        if instance.name in instances:
            raise entry.error(f"{instance.name}: expected a name that no other instance has")
        instances[instance.name] = instance
    reckonings: dict[str, Reckoning] = {}
    for entry in fields["sharing"].items("sharing") if "sharing" in fields else ():
        one = _reckoning(entry, instances)
        if one.name in reckonings:
            raise entry.error(f"{one.name}: expected a name that no other has")
        reckonings[one.name] = one
    return Prices(MappingProxyType(instances), tuple(reckonings.values()))


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


def _reckoning(entry: Entry, instances: Mapping[str, Instance]) -> Reckoning:
    fields = entry.fields(["name", "alone", "shared", "sharers"], ["source"])
    named: dict[str, Instance] = {}
    for role in ("alone", "shared"):
        name = fields[role].text()
        if name not in instances:
            known = ", ".join(instances)
            raise fields[role].error(f"{name}: unknown; expected one of {known}")
        named[role] = instances[name]
    return Reckoning(
        fields["name"].text(),
        **named,
        sharers=fields["sharers"].whole(),
        source=fields["source"].text() if "source" in fields else "",
    )


def study_notes() -> Sequence[str]:
    """Say where the study's cost table contradicts its other figures."""
    costs = study_costs()
    times = " and ".join(f"{cost.implied:,.0f} s" for cost in costs)
    return (
        (
            f"With DqnGPU's {_total('dqn'):,.0f} s on random, the published savings imply that SJF "
            f"takes {times}; no one time gives both to the last digit."
        ),
        (
            f"Figure 16 of the same study gives SJF {_total('sjf'):,.0f} s on random: its savings "
            f"would then be {' and '.join(f'{cost.from_totals:.2f} %' for cost in costs)}."
        ),
    )
