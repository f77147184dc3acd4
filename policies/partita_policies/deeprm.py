"""DeepRM: a policy network that starts one job at a time, with constant demands of jobs.

Source: H. Mao, M. Alizadeh, I. Menache, S. Kandula, "Resource Management with Deep Reinforcement
Learning", HotNets 2016 (https://doi.org/10.1145/3005745.3005750). The state is an image of the
allocation of each resource over the next steps, the demands and durations of the first M waiting
jobs, and the number of other waiting jobs. A network with one hidden layer of 20 neurons chooses
which of the M jobs to start, or none. The networks of this package were trained by REINFORCE with
the mean return of several runs of one workload as the baseline, as in the paper's algorithm 1.

As in the DqnGPU study, there are two variants: the constant demand of a job is the maximum
(`deeprm-max`) or the mean (`deeprm-mean`) of each resource of its profile. The demand only chooses
jobs: the operator and the simulator allocate what a job requests under both. In the study
`deeprm-mean` also books the mean memory, so that jobs run out of memory.

Departures from the paper: jobs that do not fit are masked; in the paper, choosing them has no
effect. Resources are shares of a GPU, not slots. Several GPUs are offered jobs in rounds and scored
separately. The reward of the training was minus the makespan instead of the slowdown.
"""

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from partita_policies.capacity import CapacityError, FreeCapacity
from partita_policies.dqn.cluster import checked
from partita_policies.dqn.network import Floats, ModelOutputError, Network
from partita_policies.forecast import outlook_of, typical_duration
from partita_policies.interference import load_of
from partita_policies.types import GPU, Job, Parameters, Placement, RunningJob, Snapshot

__all__ = ["DeepRMMax", "DeepRMMean", "DeepRMParameters"]

_SLOTS = 5
"""M of the paper's evaluation, section 4."""
_HIDDEN = 20
"""Neurons, as in the paper."""
_STEPS = 20
"""Steps of the image, as in the paper."""
_REACH = 5.0
"""Time range of the image, in mean durations."""
_RESOURCES = 4
"""Share of the time in which a kernel runs, SMs, PCIe link and memory."""
_INPUTS = _STEPS * _RESOURCES + _SLOTS * (_RESOURCES + 1) + 1
_VERSION = 1
_SHAPES = {
    "hidden": (_INPUTS, _HIDDEN), "hidden_bias": (_HIDDEN,),
    "choice": (_HIDDEN, _SLOTS + 1), "choice_bias": (_SLOTS + 1,),
}  # fmt: skip
_ASKED = attrgetter(
    "memory", "alone", "gpus", "slots", "clients", "products", "nodes", "duration", "priority",
    "thread_percent", "cpu", "host_memory", "host_storage",
)  # fmt: skip
_OVERDUE = 0.05
"""Assumed least share of its time that a running job has left."""


class DeepRMParameters(Parameters):
    """Parameters of `DeepRMMax` and `DeepRMMean`."""

    model: Path | None = Field(
        default=None,
        description="File of a DeepRM network; by default the one of this package.",
    )


class _DeepRM:
    """Common part of both variants."""

    parameters: ClassVar[type[Parameters]] = DeepRMParameters
    usage: ClassVar[Literal["max", "mean"]]

    def __init__(self, parameters: DeepRMParameters) -> None:
        kind = f"deeprm-{self.usage}"
        self._network = Network.load(parameters.model, kind, _VERSION, _SHAPES)

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start one job after the other on each GPU until the network chooses none."""
        decision = _Offers(snapshot, peak=self.usage == "max")
        while offers := decision.offers():
            states, legal = decision.states(offers)
            wishes = self._answer(states)
            if not np.isfinite(wishes[legal]).all():
                raise ModelOutputError("the network answered with something that is no number")
            chosen = np.where(legal, wishes, -np.inf).argmax(axis=1)
            for (gpu, classes), place in zip(offers, chosen.tolist(), strict=True):
                decision.start(gpu, classes[place - 1] if place else None)
        return decision.placements

    def _answer(self, states: Floats) -> Floats:
        weights = self._network.arrays
        hidden = np.maximum(states @ weights["hidden"] + weights["hidden_bias"], 0)
        answer: Floats = hidden @ weights["choice"] + weights["choice_bias"]
        return answer


class DeepRMMax(_DeepRM):
    """DeepRM baseline: a job is assumed to need the peak of its profile all the time."""

    usage = "max"


class DeepRMMean(_DeepRM):
    """DeepRM baseline: a job is assumed to need the mean of its profile all the time."""

    usage = "mean"


_Class = list[Job]
"""Jobs with the same request, the next last."""


class _Offers:
    """The offers of one decision: no job is offered to two GPUs at once."""

    def __init__(self, snapshot: Snapshot, *, peak: bool) -> None:
        self.placements: list[Placement] = []
        self._peak, self._time = peak, snapshot.time
        self._typical = typical_duration(snapshot)
        self._capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        waiting = [job for job in snapshot.jobs if not self._capacity.holds(job.id)]
        waiting.sort(key=lambda job: -job.priority)
        for job in waiting:
            checked(job)
        self._waiting = len(waiting)
        classes: dict[tuple[object, ...], _Class] = {}
        for job in waiting:
            classes.setdefault((id(job.profile), _ASKED(job)), []).append(job)
        self._order = list(classes.values())
        for one in self._order:
            one.reverse()
        self._active = sorted(snapshot.gpus, key=self._work_left)
        self._gpus = max(len(snapshot.gpus), 1)
        self._needs: dict[tuple[object, ...], tuple[Floats, float]] = {}

    def offers(self) -> list[tuple[GPU, list[_Class]]]:
        """Offer each active GPU the first waiting jobs that fit it."""
        window = min(_SLOTS, -(-self._waiting // max(len(self._active), 1)))
        offered: Counter[int] = Counter()
        offers = []
        for gpu in self._active if window else ():
            found: list[_Class] = []
            for one in self._order:
                if offered[id(one)] < len(one) and self._fits(one[-1], gpu):
                    found.append(one)
                    offered[id(one)] += 1
                    if len(found) == window:
                        break
            if found:
                offers.append((gpu, found))
        self._active = [gpu for gpu, _ in offers]
        return offers

    def _fits(self, job: Job, gpu: GPU) -> bool:
        free = self._capacity[gpu.id]
        enough = job.memory <= free.memory or (job.alone and not free.holders)
        return enough and self._capacity.reach(job, gpu.id) >= job.memory

    def start(self, gpu: GPU, chosen: _Class | None) -> None:
        """Start a job of a class on a GPU, or offer it nothing more."""
        if chosen is not None:
            job = chosen[-1]
            gpu_ids = (gpu.id,) if job.gpus == 1 else self._capacity.first_fit(job, gpu.node) or ()
            try:
                self._capacity.take(job, gpu_ids)
            except CapacityError:  # another offer of this round took what it needs of the node
                pass
            else:
                chosen.pop()
                self._waiting -= 1
                self.placements.append(Placement(job.id, gpu_ids))
                return
        self._active.remove(gpu)

    def states(self, offers: Sequence[tuple[GPU, list[_Class]]]) -> tuple[Floats, Floats]:
        """Return what the network sees of each offer, and which jobs may start; first: none."""
        states = np.zeros((len(offers), _INPUTS), np.float32)
        legal = np.zeros((len(offers), _SLOTS + 1), bool)
        alive = [one for one in self._order if one]
        work = sum(self._need(one[-1], offers[0][0])[1] * len(one) for one in alive)
        unit = max(work / max(self._waiting, 1), 1e-3)
        at = (np.arange(_STEPS) + 0.5) * (_REACH * unit / _STEPS)
        for row, (gpu, classes) in enumerate(offers):
            used = np.zeros(_RESOURCES)
            image = np.zeros((_STEPS, _RESOURCES))
            holders = [one for one in self._capacity[gpu.id].holders.values() if not one.lasting]
            for holder in holders:
                need, seconds = self._need(holder, gpu)
                image += np.outer(at < self._left(holder, seconds), need)
                used += need
            jobs = np.zeros((_SLOTS, _RESOURCES + 1))
            for place, one in enumerate(classes):
                need, seconds = self._need(one[-1], gpu)
                jobs[place] = *need, seconds / unit
                # Profiled demands limit only co-location: any job may start on an idle GPU.
                legal[row, place + 1] = not holders or (used + need <= 1 + 1e-6).all()
            legal[row, 0] = bool(holders) or not legal[row].any()
            rest = np.log1p(self._waiting / self._gpus) / 4
            states[row] = np.concatenate((image.ravel(), jobs.ravel(), [rest]))
        return states, legal

    def _need(self, job: Job | RunningJob, gpu: GPU) -> tuple[Floats, float]:
        """Return the constant demand of a job, as shares of a GPU, and its seconds."""
        key = (id(job.profile), job.duration, job.memory, gpu.memory, gpu.pcie_bandwidth)
        known = self._needs.get(key)
        if known is None:
            outlook = outlook_of(job, gpu, self._typical)
            if self._peak and job.profile is not None and job.profile.steps:
                loads = [load_of(step, gpu) for step in job.profile.steps]
            else:
                loads = [outlook.mean]
            whole = max(gpu.memory / (1 << 30), 1e-6)
            amounts = [(load.busy, load.sm, load.pcie, load.memory / whole) for load in loads]
            known = self._needs[key] = np.max(amounts, axis=0), outlook.duration
        return known

    def _left(self, holder: Job | RunningJob, seconds: float) -> float:
        since = holder.elapsed(self._time) if isinstance(holder, RunningJob) else 0.0
        return max(seconds - since, _OVERDUE * seconds)

    def _work_left(self, gpu: GPU) -> float:
        """Return the seconds of work left on a GPU; idle GPUs come first."""
        left = sum(
            max((one.duration or 0) - one.elapsed(self._time), 0.0) + 1 for one in gpu.running
        )
        return float(left)
