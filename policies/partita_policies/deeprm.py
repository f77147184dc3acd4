"""DeepRM: a policy network that starts one job at a time, with constant demands of jobs.

Source: H. Mao, M. Alizadeh, I. Menache, S. Kandula, "Resource Management with Deep Reinforcement
Learning", HotNets 2016 (https://doi.org/10.1145/3005745.3005750). The state is an image of the
allocation of each resource over the next steps, the demands and durations of the first M waiting
jobs, and the number of other waiting jobs. A network with one hidden layer of 20 neurons chooses
which of the M jobs to start, or none. It is trained by REINFORCE, with the mean return of several
runs of one workload as the baseline (see `partita_research.training.deeprm_training`).

As in the DqnGPU study, there are two variants: the constant demand of a job is the maximum
(`deeprm-max`) or the mean (`deeprm-mean`) of each resource of its profile.

Departures from the paper: jobs that do not fit are masked; in the paper, choosing them has no
effect. Resources are shares of a GPU, not slots. Several GPUs are offered jobs in rounds and
scored separately. The reward is that of this project's training environment, for the makespan
instead of the slowdown.
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
"""Neurons, as in the paper."""
_STEPS = 20
"""Steps of the image, as in the paper."""
_REACH = 5.0
"""Time range of the image, in mean durations."""
_JOB = RESOURCES + 1
INPUTS = _STEPS * RESOURCES + SLOTS * _JOB + 1
VERSION = 1
"""Version of the inputs. Models with another version are rejected."""
_ROWS = 1 << 20


class DeepRMParameters(Parameters):
    """Parameters of `DeepRMMax` and `DeepRMMean`."""

    model: Path | None = Field(
        default=None,
        description="ONNX file of a DeepRM network; by default the one of this package.",
    )


class _DeepRM:
    """Common part of both variants."""

    parameters: ClassVar[type[Parameters]] = DeepRMParameters
    usage: ClassVar[Usage]

    def __init__(self, parameters: DeepRMParameters) -> None:
        kind = kind_of(self.usage)
        shapes = {"states": INPUTS, "legal": SLOTS + 1}
        self._session, _ = open_session(parameters.model, f"{kind}.onnx", kind, VERSION, shapes)
        self._profiles = ProfileCache(divided)

    def decide(self, snapshot: Snapshot) -> Sequence[Placement]:
        """Start one job after the other on each GPU until the network chooses none."""
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
    """Return the `kind` in the metadata of such a model."""
    return f"deeprm-{usage}"


def see(offers: Sequence[Offer], catalogue: Catalogue, usage: Usage) -> tuple[Floats, Bools]:
    """Compute the network's inputs for offers.

    Returns
    -------
    tuple
        States, (G, INPUTS), and which of the jobs may be started, (G, SLOTS + 1); the first
        element is the choice to start none.
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
    # Profiled demands are constraints only beside other jobs: any job may start on an idle GPU.
    busy = there.any(axis=0)
    fits = (allocated.sum(axis=0) + asked <= 1 + 1e-6).all(axis=-1) | ~busy
    legal = np.zeros((len(offers), SLOTS + 1), bool)
    legal[:, 1:] = (fits & theirs).T
    legal[:, 0] = busy | ~legal.any(axis=1)
    parts = [image.reshape(len(offers), -1), jobs.reshape(len(offers), -1), beyond[:, None]]
    return np.concatenate(parts, axis=1, dtype=np.float32), legal


def _backlogs(offers: Sequence[Offer], durations: Floats) -> tuple[Floats, Floats]:
    """Return the mean duration and the scaled number of the waiting jobs, for each offer."""
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
    """Return the amount of each resource that is scaled to 1."""
    whole = [1.0] * RESOURCES
    whole[MEMORY] = max(gpu.memory / (1 << 30), 1e-6)
    whole[PCIE] = float(gpu.pcie_bandwidth or np.inf)
    return whole
