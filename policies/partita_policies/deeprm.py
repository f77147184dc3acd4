"""DeepRM: a policy network that starts one job at a time, with constant demands of jobs.

Source: H. Mao, M. Alizadeh, I. Menache, S. Kandula, "Resource Management with Deep Reinforcement
Learning", HotNets 2016 (https://doi.org/10.1145/3005745.3005750). The state is an image of the
allocation of each resource over the next steps, the demands and durations of the first M waiting
jobs, and the number of other waiting jobs. A network with one hidden layer of 20 neurons chooses
which of the M jobs to start, or none. The networks of this package were trained by
`partita train --policy deeprm-max` (or deeprm-mean): REINFORCE with the mean return of several runs
of one workload as the baseline, as in the paper's algorithm 1.

As in the DqnGPU study, there are two variants: the constant demand of a job is the maximum
(`deeprm-max`) or the mean (`deeprm-mean`) of each resource of its profile. The demand only chooses
jobs: the operator and the simulator allocate what a job requests under both. In the study
`deeprm-mean` also books the mean memory, so that jobs run out of memory.

Departures from the paper: jobs that do not fit are masked; in the paper, choosing them has no
effect. Resources are shares of a GPU, not slots. Several GPUs are offered jobs in rounds and scored
separately. The reward of the training was minus the makespan instead of the slowdown.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from partita_policies.capacity import FreeCapacity
from partita_policies.class_fits import ClassFits
from partita_policies.forecast import LEAST_LEFT, outlook_of, typical_duration
from partita_policies.incremental import CapacityCache
from partita_policies.interference import Load, load_of
from partita_policies.network import Floats, ModelOutputError, Network
from partita_policies.requests import CachedRequest, RequestCache, gpu_type
from partita_policies.types import GPU, Job, Parameters, Placement, RunningJob, Snapshot

__all__ = ["SHAPES", "VERSION", "DeepRM", "DeepRMMax", "DeepRMMean", "DeepRMParameters"]

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
VERSION = 1
SHAPES = {
    "hidden": (_INPUTS, _HIDDEN), "hidden_bias": (_HIDDEN,),
    "choice": (_HIDDEN, _SLOTS + 1), "choice_bias": (_SLOTS + 1,),
}  # fmt: skip


class DeepRMParameters(Parameters):
    """Parameters of `DeepRMMax` and `DeepRMMean`."""

    model: Path | None = Field(
        default=None,
        description="File of a DeepRM network; by default the one of this package.",
    )


Choose = Callable[[Floats, Floats], NDArray[np.int64]]
"""Returns the place of the choice for each offer, from what the network sees and answers; what is
not allowed has the answer minus infinity."""


class DeepRM:
    """Common part of both variants."""

    parameters: ClassVar[type[Parameters]] = DeepRMParameters
    usage: ClassVar[Literal["max", "mean"]]

    def __init__(
        self,
        parameters: DeepRMParameters,
        network: Network | None = None,
        choose: Choose | None = None,
    ) -> None:
        kind = f"deeprm-{self.usage}"
        self._network = network or Network.load(parameters.model, kind, VERSION, SHAPES)
        self._choose = choose or _best
        self._capacity, self._requests = CapacityCache(), RequestCache()

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start one job after the other on each GPU until the network chooses none."""
        self._requests.begin()
        with self._capacity.of(snapshot) as capacity:
            demand = _peak_demand if self.usage == "max" else _mean_demand
            decision = _Offers(snapshot, capacity, self._requests, demand)
            while offers := decision.offers():
                states, legal = decision.states(offers)
                wishes = self._answer(states)
                if not np.isfinite(wishes[legal]).all():
                    raise ModelOutputError("the network answered with something that is no number")
                chosen = self._choose(states, np.where(legal, wishes, -np.inf))
                decision.start(offers, chosen.tolist())
        return decision.placements

    def _answer(self, states: Floats) -> Floats:
        weights = self._network.arrays
        hidden = np.maximum(states @ weights["hidden"] + weights["hidden_bias"], 0)
        answer: Floats = hidden @ weights["choice"] + weights["choice_bias"]
        return answer


class DeepRMMax(DeepRM):
    """DeepRM baseline: a job is assumed to need the peak of its profile all the time."""

    usage = "max"


class DeepRMMean(DeepRM):
    """DeepRM baseline: a job is assumed to need the mean of its profile all the time."""

    usage = "mean"


def _best(_: Floats, answers: Floats) -> NDArray[np.int64]:
    best: NDArray[np.int64] = answers.argmax(axis=1)
    return best


_Demand = tuple[float, ...]
"""Constant demand of a job, as shares of a GPU, and its seconds."""
_Offer = tuple[GPU, list[int]]
"""A GPU, and the classes of the jobs that it is offered."""


def _mean_demand(job: Job | RunningJob, gpu: GPU, typical: float) -> _Demand:
    outlook = outlook_of(job, gpu, typical)
    return (*_shares([outlook.mean], gpu), outlook.duration)


def _peak_demand(job: Job | RunningJob, gpu: GPU, typical: float) -> _Demand:
    if job.profile is None or not job.profile.steps:
        return _mean_demand(job, gpu, typical)
    loads = [load_of(step, gpu) for step in job.profile.steps]
    return (*_shares(loads, gpu), outlook_of(job, gpu, typical).duration)


def _shares(loads: Sequence[Load], gpu: GPU) -> list[float]:
    whole = max(gpu.memory / (1 << 30), 1e-6)
    amounts = [(load.busy, load.sm, load.pcie, load.memory / whole) for load in loads]
    return [max(column) for column in zip(*amounts, strict=True)]


class _Offers:
    """The offers of one decision: no job is offered to two GPUs at once."""

    def __init__(
        self,
        snapshot: Snapshot,
        capacity: FreeCapacity,
        requests: RequestCache,
        demand: Callable[[Job | RunningJob, GPU, float], _Demand],
    ) -> None:
        self.placements: list[Placement] = []
        self._time, self._capacity, self._request_of = snapshot.time, capacity, requests.of
        self._demand, self._typical = demand, typical_duration(snapshot)
        waiting = capacity.without_gpus(snapshot.jobs)
        waiting.sort(key=lambda job: -job.priority)
        queues = defaultdict[tuple[CachedRequest, int, int], list[Job]](list)
        for request, job in zip(requests.of_all(waiting), waiting, strict=True):
            queues[request, job.gpus, job.priority].append(job)
        self._requests = [request for request, _, _ in queues]
        self._queues = [queue[::-1] for queue in queues.values()]
        """The jobs of each class, which have the same request, the next last."""
        self._left = np.array([len(queue) for queue in self._queues], np.int64)
        self._waiting = len(waiting)
        self._fits = ClassFits([queue[-1] for queue in self._queues], capacity)
        self._demands: dict[Hashable, NDArray[np.float64]] = {}
        """Demands of the classes on each type of GPU."""
        self._active = sorted(snapshot.gpus, key=self._work_left)
        self._gpus = max(len(snapshot.gpus), 1)

    def offers(self) -> list[_Offer]:
        """Offer each active GPU the first waiting jobs that fit it."""
        window = min(_SLOTS, -(-self._waiting // max(len(self._active), 1)))
        left = self._left.copy()
        still = left > 0
        offers = []
        for gpu in self._active if window else ():
            found = self._fits.first(gpu, still, window)
            if len(found):
                left[found] -= 1
                still[found] = left[found] > 0
                offers.append((gpu, found.tolist()))
        self._active = [gpu for gpu, _ in offers]
        return offers

    def start(self, offers: Sequence[_Offer], chosen: Sequence[int]) -> None:
        """Start a job of each offer, by its place; 0: none, and the GPU is offered nothing more."""
        active = []
        for (gpu, classes), place in zip(offers, chosen, strict=True):
            if not place:
                continue
            one = classes[place - 1]
            job = self._queues[one][-1]
            gpu_ids = (gpu.id,) if job.gpus == 1 else self._capacity.first_fit(job, gpu.node) or ()
            if self._capacity.why_not_together(job, gpu_ids) is not None:
                continue  # another offer of this round took what it needs of the node
            self._capacity.allocate(job, gpu_ids)
            self._queues[one].pop()
            self._left[one] -= 1
            self._waiting -= 1
            self.placements.append(Placement(job.id, gpu_ids))
            active.append(gpu)
        self._active = active

    def states(self, offers: Sequence[_Offer]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return what the network sees of each offer, and which jobs may start; first: none."""
        work = sum((self._demands_on(offers[0][0])[:, -1] * self._left).tolist())
        unit = max(work / max(self._waiting, 1), 1e-3)
        at = (np.arange(_STEPS) + 0.5) * (_REACH * unit / _STEPS)
        jobs = np.zeros((len(offers), _SLOTS, _RESOURCES + 1))
        offered = np.zeros((len(offers), _SLOTS), bool)
        for row, (gpu, classes) in enumerate(offers):
            jobs[row, : len(classes)] = self._demands_on(gpu)[classes]
            offered[row, : len(classes)] = True
        jobs[:, :, -1] /= unit
        image, used, busy = self._held([gpu for gpu, _ in offers], at)
        # Profiled demands limit only co-location: any job may start on an idle GPU.
        may = offered & (~busy | (used + jobs[:, :, :-1] <= 1 + 1e-6).all(axis=2))
        legal = np.hstack((busy | ~may.any(axis=1, keepdims=True), may))
        rest = np.full((len(offers), 1), np.log1p(self._waiting / self._gpus) / 4)
        flat = [part.reshape(len(offers), -1) for part in (image, jobs, rest)]
        return np.hstack(flat).astype(np.float32), legal

    def _held(
        self, gpus: Sequence[GPU], at: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return what the jobs on GPUs take at some times and now, and whether there are any."""
        image = np.zeros((len(gpus), len(at), _RESOURCES))
        used = np.zeros((len(gpus), 1, _RESOURCES))
        held = [
            [one for one in self._capacity[gpu.id].holders.values() if not one.lasting]
            for gpu in gpus
        ]
        for place in range(max(map(len, held))):
            rows = [row for row, there in enumerate(held) if place < len(there)]
            jobs = [held[row][place] for row in rows]
            *needs, seconds = np.array(
                [
                    self._demand_of(self._request_of(job), gpus[row])
                    for row, job in zip(rows, jobs, strict=True)
                ]
            ).T
            since = [j.elapsed(self._time) if isinstance(j, RunningJob) else 0.0 for j in jobs]
            left = np.maximum(seconds - since, LEAST_LEFT * seconds)
            need = np.stack(needs, axis=1)[:, None]
            image[rows] += (at < left[:, None])[:, :, None] * need
            used[rows] += need
        return image, used, np.array([[bool(there)] for there in held])

    def _demand_of(self, request: CachedRequest, gpu: GPU) -> _Demand:
        return request.on(gpu, self._typical, self._demand.__name__, self._demand)

    def _demands_on(self, gpu: GPU) -> NDArray[np.float64]:
        """Return the demands of all classes on a type of GPU."""
        found = self._demands.get(gpu_type(gpu))
        if found is None:
            rows = CachedRequest.all_on(
                self._requests, gpu, self._typical, self._demand.__name__, self._demand
            )
            columns = _RESOURCES + 1
            flat = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * columns)
            found = self._demands[gpu_type(gpu)] = flat.reshape(-1, columns)
        return found

    def _work_left(self, gpu: GPU) -> float:
        """Return the seconds of work left on a GPU; idle GPUs come first."""
        left = sum(
            max((one.duration or 0) - one.elapsed(self._time), 0.0) + 1 for one in gpu.running
        )
        return float(left)
