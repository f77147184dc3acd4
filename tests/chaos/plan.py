"""What happens in a run, computed from its seed alone: jobs with their right ends, kills, faults.

The same seed gives the same plan; what it meets, and so what comes of it, depends on time. Where
an action is about one of several things that may or may not be there by then, the plan has a
`pick` from 0 to 1 for it: that part of the way along what is there, in the order of names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "FAULTS",
    "JOBS",
    "KILLS",
    "PARTITIONS",
    "STUCK_BY",
    "Action",
    "JobPlan",
    "PartitionPlan",
    "Round",
    "Step",
    "make_plan",
]


@dataclass(frozen=True)
class PartitionPlan:
    """A partition, and how it is while nobody changes it."""

    gpus: int
    policies: tuple[str, ...] = ("fifo",)
    """The first is its own; it is changed to one of the others at times."""
    max_bypasses: int = 100
    mode: str = "MPS"
    preemption: str = "Never"
    own_node: bool = False
    """Its GPUs are on a node that takes nobody else's: several may be on one job's node then."""
    share: int = 1
    """Of the jobs, relative to the other partitions."""


PARTITIONS = {
    "shared": PartitionPlan(
        3,
        ("tetris", "fifo", "sjf", "fgd", "planner", "not-there"),
        preemption="LowerPriority",
        share=6,
    ),
    "single": PartitionPlan(1, ("fifo",), max_bypasses=4, share=4),
    "wide": PartitionPlan(2, mode="Exclusive", own_node=True, share=1),
    # For the Deployments of `workloads`.
    "serving": PartitionPlan(1, share=0),
}

KILLS = {
    "kill-leader": 6,
    "kill-standby": 2,
    "kill-both": 1,
    "term-leader": 2,
    "freeze-leader": 3,
    "freeze-standby": 1,
    "kill-apiserver": 2,
    "kill-etcd": 2,
}
"""Ends of processes, by how often they come."""
FAULTS = {
    # On the way to the API server.
    "cut-before": 4,
    "cut-after": 4,
    "delay": 4,
    "storm-409": 3,
    "storm-429": 2,
    "storm-500": 3,
    "storm-503": 2,
    "drop-watches": 3,
    "outage": 2,
    # On the nodes.
    "node-gone": 2,
    "node-silent": 2,
    "cordon": 1,
    "mps": 3,
    "gpu-lost": 2,
    "xid": 2,
    # By people.
    "delete-job-pod": 3,
    "remove-job-pod": 2,
    "remove-new-pod": 2,
    "delete-server-pod": 2,
    "delete-server": 1,
    "forget-server": 1,
    "drop-allocation": 2,
    "stray-allocation": 1,
    "change-job": 2,
    "delete-lease": 1,
    "steal-lease": 1,
    "scale": 3,
    "policy": 4,
    # To claims, those of jobs too, and to workloads.
    "delete-claim": 3,
    "edit-claim": 2,
    "deallocate-claim": 3,
    "delete-workload-pod": 3,
    "scale-workload": 3,
    "without-plugin": 2,
}
"""What else goes wrong, by how often it comes."""
JOBS = {
    "succeeds": 10,
    "large": 4,
    "learns": 1,
    "fails": 3,
    "grows": 3,
    "too-large": 1,
    "late": 1,
    "stuck": 2,
    "urgent": 2,
    "deleted": 2,
    "suspended": 1,
}
"""Kinds of jobs, by how often they come; `JobPlan.end` says where each must end."""

STUCK_BY = ("ErrImagePull", "NotScheduled")
"""Kubernetes' reasons for which Pods of stuck jobs do not start."""

MEAN_PAUSE = 0.45
"""Seconds between two steps; with what some actions take themselves a step takes about one."""
SPEED = 20.0
"""Virtual seconds of the simulated nodes in a second."""


@dataclass(frozen=True)
class JobPlan:
    """A job, and the end that it must come to.

    Attributes
    ----------
    end
        The phase at the end; "Gone" for one that is deleted.
    failures
        How many of its attempts must have failed by themselves.
    refusals
        How many of them at least must have run out of memory.
    not_started
        How many of them must have ended because the Pod did not start.
    stuck_by
        Why its Pods do not start; empty if they do.
    after
        Seconds after which it is suspended or deleted.
    """

    name: str
    kind: str
    partition: str
    team: str
    memory: int | None
    """GiB that it allocates; None lets it be learnt."""
    seconds: float
    end: str
    failures: int = 0
    refusals: int = 0
    not_started: int = 0
    stuck_by: str = ""
    priority: int = 0
    gpus: int = 1
    after: float = 0.0


@dataclass(frozen=True)
class Action:
    """One kill or fault."""

    kind: str
    pick: float
    seconds: float
    """How long it lasts, where it lasts."""
    times: int
    """How many requests it strikes, where it strikes requests."""


@dataclass(frozen=True)
class Step:
    """After a pause jobs come, and something goes wrong."""

    number: int
    pause: float
    jobs: tuple[JobPlan, ...]
    action: Action


@dataclass(frozen=True)
class Round:
    """Steps after which everything is mended, and must come to its right end."""

    number: int
    steps: tuple[Step, ...]

    @property
    def jobs(self) -> Iterator[JobPlan]:
        """All its jobs."""
        return (job for step in self.steps for job in step.jobs)


def make_plan(seed: int, kills: int, faults: int, per_round: int) -> list[Round]:
    """Compute a run.

    Parameters
    ----------
    kills, faults
        How many there are of each; they come in random order.
    per_round
        Steps of a round; the last may have fewer.
    """
    # Randomness with which nothing is to be kept secret; strings seed alike on all machines.
    dice = random.Random(f"chaos {seed}")
    kinds = [*_choices(dice, KILLS, kills), *_choices(dice, FAULTS, faults)]
    dice.shuffle(kinds)
    steps = [_step(dice, number, kind) for number, kind in enumerate(kinds, start=1)]
    return [
        Round(number, tuple(steps[first : first + per_round]))
        for number, first in enumerate(range(0, len(steps), per_round), start=1)
    ]


def _choices(dice: random.Random, weights: dict[str, int], count: int) -> list[str]:
    return dice.choices(list(weights), list(weights.values()), k=count)


def _step(dice: random.Random, number: int, kind: str) -> Step:
    action = Action(
        kind,
        pick=dice.random(),
        seconds=round(dice.uniform(0.1, 2.0), 2),
        times=dice.choice((1, 1, 2, 4, 10)),
    )
    pause = round(min(3.0, dice.expovariate(1 / MEAN_PAUSE)), 3)
    count = dice.choice((0, 1, 1, 2))
    jobs = tuple(_job(dice, f"j{number}-{letter}") for letter in "abc"[:count])
    return Step(number, pause, jobs, action)


def _job(dice: random.Random, name: str) -> JobPlan:
    shares = {name: partition.share for name, partition in PARTITIONS.items()}
    (partition,) = _choices(dice, shares, 1)
    (kind,) = _choices(dice, JOBS, 1)
    exclusive = PARTITIONS[partition].mode == "Exclusive"
    # On one GPU jobs are to wait, so that large ones are passed over.
    longest = 4.0 if PARTITIONS[partition].gpus == 1 else 1.5
    job = JobPlan(
        name=name,
        kind=kind,
        partition=partition,
        team=dice.choice(("red", "blue")),
        memory=dice.choice((2, 4, 4, 8, 12)),
        seconds=round(dice.uniform(0.1, longest), 2),
        end="Succeeded",
        gpus=dice.choice((1, 2)) if exclusive else 1,
        after=round(dice.uniform(0.0, 3.0), 2),
    )
    return _of_kind(dice, job)


def _of_kind(dice: random.Random, job: JobPlan) -> JobPlan:
    """Give a job what makes its kind."""
    more: dict[str, object] = {}
    match job.kind:
        case "large":
            more = {"memory": 30}
        case "learns":
            more = {"memory": None}
        case "fails":
            more = {"end": "Failed", "failures": dice.randint(1, 3)}
        case "grows":
            # An Exclusive partition limits no memory: there it just succeeds.
            limited = PARTITIONS[job.partition].mode == "MPS"
            more = {"refusals": 1 if limited else 0, "memory": 4}
        case "too-large":
            more = {"end": "Queued", "memory": 400}
        case "late":
            more = {"end": "Failed", "seconds": 3600.0}
        case "stuck":
            more = {"end": "Failed", "not_started": 2, "stuck_by": dice.choice(STUCK_BY)}
        case "urgent":
            more = {"priority": dice.choice((-5, 5, 10)), "memory": dice.choice((8, 16))}
        case "deleted":
            more = {"end": "Gone", "seconds": dice.choice((job.seconds, 3600.0))}
        case "suspended":
            more = {"seconds": job.seconds + 1}
        case _:
            pass
    return JobPlan(**{**vars(job), **more})
