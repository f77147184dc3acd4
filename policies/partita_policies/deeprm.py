"""DeepRM: a policy network that starts one job at a time, seen as constant amounts of resources.

Source: H. Mao, M. Alizadeh, I. Menache, S. Kandula, "Resource Management with Deep Reinforcement
Learning", HotNets 2016 (https://doi.org/10.1145/3005745.3005750): the state is an image of what
is allocated of each resource over the next steps, the demands and durations of the first M waiting
jobs, and the number of those beyond; a network with one hidden layer of 20 neurons says which of
the M jobs to start, or none; it is trained by REINFORCE, with the mean return of several runs of
one workload as the baseline (see `deeprm_training`).

The DqnGPU study compares with it in two forms, and so do we: what a job needs is the largest
(`deeprm-max`) or the mean (`deeprm-mean`) of each resource of its profile, all the time.

Departures from the paper: jobs that do not fit are masked and not merely useless to choose;
resources are shares of a GPU, not slots; several GPUs are dealt jobs in rounds and judged apart;
the reward is our environment's, for the makespan, and not the slowdown's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from partita_policies.dqn.combination_forecast import Bools
from partita_policies.dqn.demand import MEMORY, PCIE, RESOURCES, Catalogue, Floats, divided
from partita_policies.dqn.job_arrays import padded
from partita_policies.dqn.offers import Offer, OfferRound
from partita_policies.dqn.served import ModelOutputError, open_session
from partita_policies.profile_cache import ProfileCache
from partita_policies.types import GPU, Parameters, Placement, Snapshot

__all__ = [
    "HIDDEN",
    "INPUTS",
    "SLOTS",
    "DeepRMMax",
    "DeepRMMean",
    "DeepRMParameters",
    "Usage",
    "kind_of",
    "see",
]

Usage = Literal["max", "mean"]

SLOTS = 5
"""M of the paper's evaluation, section 4."""
HIDDEN = 20
"""Neurons, as there."""
_STEPS = 20
"""Steps of the image, as there."""
_REACH = 5.0
"""Mean durations that the image reaches ahead."""
_JOB = RESOURCES + 1
INPUTS = _STEPS * RESOURCES + SLOTS * _JOB + 1
VERSION = 1
"""Of the inputs: a model trained before a change is refused."""
_ROWS = 1 << 20


class DeepRMParameters(Parameters):
    """Parameters of `DeepRMMax` and `DeepRMMean`."""

    model: Path | None = Field(
        default=None,
        description="ONNX file of a DeepRM network; by default the one of this package.",
    )


class _DeepRM:
    """What the two have in common."""

    parameters: ClassVar[type[Parameters]] = DeepRMParameters
    usage: ClassVar[Usage]

    def __init__(self, parameters: DeepRMParameters) -> None:
        kind = kind_of(self.usage)
        shapes = {"states": INPUTS, "legal": SLOTS + 1}
        self._session, _ = open_session(parameters.model, f"{kind}.onnx", kind, VERSION, shapes)
        self._profiles = ProfileCache(divided)

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start one job after the other on each GPU until the network wants no more."""
        catalogue = Catalogue(self._profiles)
        round_ = OfferRound(snapshot, catalogue)
        while offers := round_.make_offers(SLOTS, _ROWS):
            states, legal = see(offers, catalogue, self.usage)
            given = {"states": states, "legal": legal.astype(np.float32)}
            (estimates,) = self._session.run(["estimates"], given)
            if not np.isfinite(estimates[legal]).all():
                raise ModelOutputError("the network answered with something that is no number")
            chosen = np.where(legal, estimates, -np.inf).argmax(axis=1)
            round_.apply(offers, [[place - 1] if place else [] for place in chosen.tolist()])
        return round_.placements


class DeepRMMax(_DeepRM):
    """DeepRM baseline: a job is assumed to need the peak of its profile all the time."""

    usage: ClassVar[Usage] = "max"


class DeepRMMean(_DeepRM):
    """DeepRM baseline: a job is assumed to need the mean of its profile all the time."""

    usage: ClassVar[Usage] = "mean"


def kind_of(usage: Usage) -> str:
    """Return what the metadata of such a model says it is."""
    return f"deeprm-{usage}"


def see(offers: Sequence[Offer], catalogue: Catalogue, usage: Usage) -> tuple[Floats, Bools]:
    """Show offers as the network sees them.

    Returns
    -------
    tuple
        States, (G, INPUTS), and which of the jobs may be started, (G, SLOTS + 1); the first is
        to start none.
    """
    demands = catalogue.demands()
    needs = demands.peaks if usage == "max" else demands.rests[:, 0]
    running, there = padded([offer.running for offer in offers], np.int64)
    elapsed, _ = padded([offer.elapsed for offer in offers], np.float32)
    offered, theirs = padded([offer.demands for offer in offers], np.int64, SLOTS)
    units, beyond = _backlogs(offers, demands.durations)
    whole = np.array([_whole(offer.free.gpu) for offer in offers], np.float32)
    lengths = demands.durations[running]
    left = np.maximum(lengths - elapsed, 0.05 * lengths) * there
    allocated = needs[running] * there[..., None] / whole
    at = (np.arange(_STEPS, dtype=np.float32) + 0.5) * (_REACH * units[:, None] / _STEPS)
    later = (at[..., None] < left.T[:, None]).astype(np.float32)
    image = later @ allocated.swapaxes(0, 1)
    asked = needs[offered] / whole
    jobs = np.zeros((len(offers), SLOTS, _JOB), np.float32)
    jobs[..., :RESOURCES] = (asked * theirs[..., None]).swapaxes(0, 1)
    jobs[..., RESOURCES] = (demands.durations[offered] * theirs / units).T
    # By their profile they forbid only beside others: none is too large for an idle GPU.
    busy = there.any(axis=0)
    fits = (allocated.sum(axis=0) + asked <= 1 + 1e-6).all(axis=-1) | ~busy
    legal = np.zeros((len(offers), SLOTS + 1), bool)
    legal[:, 1:] = (fits & theirs).T
    legal[:, 0] = busy | ~legal.any(axis=1)
    parts = [image.reshape(len(offers), -1), jobs.reshape(len(offers), -1), beyond[:, None]]
    return np.concatenate(parts, axis=1, dtype=np.float32), legal


def _backlogs(offers: Sequence[Offer], durations: Floats) -> tuple[Floats, Floats]:
    """Return the mean duration of what waits, and how much that is, for each offer."""
    known: dict[int, tuple[float, float]] = {}
    for offer in offers:
        backlog = offer.backlog
        if id(backlog) not in known:
            jobs = backlog.counts.sum()
            unit = float((durations[backlog.demands] * backlog.counts).sum() / jobs)
            known[id(backlog)] = unit, float(np.log1p(jobs / backlog.gpus) / 4)
    rows = np.array([known[id(offer.backlog)] for offer in offers], np.float32)
    return rows[:, 0], rows[:, 1]


def _whole(gpu: GPU) -> list[float]:
    """Return what stands for 1 of each resource."""
    whole = [1.0] * RESOURCES
    whole[MEMORY] = max(gpu.memory / (1 << 30), 1e-6)
    whole[PCIE] = float(gpu.pcie_bandwidth or np.inf)
    return whole
