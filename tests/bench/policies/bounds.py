"""What no policy can beat: lower bounds on the makespan.

All bounds hold for every schedule of the simulator that finishes all jobs which can finish, with
what the applications really do; a policy knows less. `optimum` has tighter ones.

Chain. A run never goes faster than alone on the fastest GPU, so a job that arrives at time a ends
no earlier than a + duration / speed.

Area. Take a resource of which a job needs the share d of a GPU for each second of its work. If on
a GPU of speed v, at any moment, the shares of the running jobs times their paces (work a second)
add up to at most v, then by adding up over time and GPUs

    sum of d x duration over the jobs  <=  makespan x sum of the speeds.

This holds of each of these:

- SMs (MPS). A job's slowdown is at least its stretch 1 + k d, and `stretches` chooses k such that
  the sum of d / (1 + k d) is at most 1; other contention only adds to the slowdown.
- PCIe link: likewise.
- Kernels (time slicing). A GPU runs one at a time, so the shares of time in which they run,
  d / (1 + k d), add up to at most 1; switches only add.
- Memory: what is allocated never exceeds a GPU, and a pace is at most v. Under MPS a job that
  finishes has allocated at least its real peak.
- Slots and MPS clients: likewise. A job that must be alone takes all of a GPU, of each.

Where the share of a job depends on the GPU, the smallest counts. A job on several GPUs counts as
often. Of jobs that arrive over time, those that arrive from some moment on can only be worked on
from then on, which gives a bound for each arrival; the largest counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from partita_policies.capacity import FreeCapacity
from partita_policies.interference import Load, load_of
from partita_policies.types import GPU, Sharing
from partita_research.simulator.tasks import Task

__all__ = ["Bounds", "bounds", "finishable"]

_EQUAL_SPEED: Mapping[str, float] = MappingProxyType({})


class Bounds(NamedTuple):
    """Lower bounds on the makespan, seconds."""

    chain: float
    """By the job that ends last at best."""
    area: Mapping[str, float]
    """By resource."""

    @property
    def best(self) -> float:
        """The largest of them."""
        return max(self.chain, *self.area.values())

    @property
    def tightest(self) -> str:
        """What it is by: `chain`, or the resource."""
        named = {"chain": self.chain, **self.area}
        return max(named, key=lambda name: named[name])


def finishable(tasks: Sequence[Task], gpus: Sequence[GPU]) -> list[Task]:
    """Return the jobs that some schedule finishes: a GPU has the memory that they need."""
    capacity = FreeCapacity(gpus)
    return [
        task for task in tasks if capacity.first_fit(task.job) is not None and _gpus_of(task, gpus)
    ]


def bounds(
    tasks: Sequence[Task],
    gpus: Sequence[GPU],
    *,
    sharing: Sharing = Sharing.MPS,
    speeds: Mapping[str, float] = _EQUAL_SPEED,
) -> Bounds:
    """Bound the time from the first arrival to the last end, from below.

    Parameters
    ----------
    tasks
        The jobs; those that cannot finish are left out.
    gpus, sharing, speeds
        As in `Simulation`.
    """
    able = finishable(tasks, gpus)
    if not able:
        return Bounds(0.0, {"memory": 0.0})
    start = min(task.job.submitted for task in tasks)
    speed = {gpu.id: speeds.get(gpu.product, 1.0) for gpu in gpus}
    chain = max(
        task.job.submitted
        - start
        + task.truth.duration / max(speed[gpu.id] for gpu in _gpus_of(task, gpus))
        for task in able
    )
    total = sum(speed.values())
    area = {
        name: _by_arrival(able, need, start, total)
        for name, need in _needs(able, gpus, sharing).items()
    }
    return Bounds(chain, area)


def _by_arrival(
    tasks: Sequence[Task], need: Mapping[str, float], start: float, speed: float
) -> float:
    bound = later = 0.0
    latest_first = sorted(tasks, key=lambda task: -task.job.submitted)
    for arrival, group in groupby(latest_first, key=lambda task: task.job.submitted):
        later += sum(need[task.job.id] for task in group)
        bound = max(bound, arrival - start + later / speed)
    return bound


def _needs(
    tasks: Sequence[Task], gpus: Sequence[GPU], sharing: Sharing
) -> dict[str, dict[str, float]]:
    """Return, by resource and job, GPU-seconds of work that need all of the resource."""
    needs: dict[str, dict[str, float]] = {}
    alike: dict[tuple[int, ...], dict[str, float]] = {}
    for task in tasks:
        job = task.job
        shape = (job.memory, job.alone, job.slots, job.clients, job.thread_percent, job.gpus)
        key = (id(task.truth), *shape)
        shares = alike.get(key)
        if shares is None:
            shares = alike[key] = _shares(task, _gpus_of(task, gpus), sharing)
        for name, share in shares.items():
            needs.setdefault(name, {})[job.id] = share * task.truth.duration * job.gpus
    return needs


def _shares(task: Task, gpus: Sequence[GPU], sharing: Sharing) -> dict[str, float]:
    """Return the mean share of each resource of a GPU that a job's work needs, at least."""
    job, truth = task.job, task.truth
    if sharing is Sharing.EXCLUSIVE:
        return {"whole GPUs": 1.0}
    if job.alone:
        kernels = "sm" if sharing is Sharing.MPS else "kernels"
        return dict.fromkeys(("memory", "slots", "clients", "pcie", kernels), 1.0)
    memory = max(job.memory, truth.peak_memory) if sharing is Sharing.MPS else job.memory
    shares = {
        "memory": min(_part(memory, gpu.memory) for gpu in gpus),
        "slots": min(job.slots / gpu.max_jobs for gpu in gpus),
        "clients": min(job.clients / gpu.max_clients for gpu in gpus),
        "pcie": _least(task, gpus, lambda load: load.pcie),
    }
    if sharing is Sharing.MPS:
        shares["sm"] = _least(task, gpus, lambda load: min(load.sm, load.limit))
    else:
        shares["kernels"] = _least(task, gpus, lambda load: load.busy)
    return shares


def _least(task: Task, gpus: Iterable[GPU], share: Callable[[Load], float]) -> float:
    threads = task.job.thread_percent
    steps = task.truth.steps
    widths = {gpu.pcie_bandwidth: gpu for gpu in gpus}.values()
    return min(
        sum(share(load_of(step, gpu, thread_percent=threads)) for step in steps) / len(steps)
        for gpu in widths
    )


def _gpus_of(task: Task, gpus: Iterable[GPU]) -> list[GPU]:
    """Return the GPUs on which a job could finish."""
    job = task.job
    return [
        gpu
        for gpu in gpus
        if max(job.memory, task.truth.peak_memory) <= gpu.memory
        and job.slots <= gpu.max_jobs
        and job.clients <= gpu.max_clients
        and (not job.products or gpu.product in job.products)
    ]


def _part(amount: int, whole: int) -> float:
    return amount / whole if whole else 0.0
