"""The environment to learn in: simulated workloads on one GPU each, many side by side.

An **ask** is one choice among the combinations of one offer. Between two asks time may pass: the
reward is by how much the least time that all the rest can take fell (`prices`), less the seconds
it took, so that all rewards of a workload add up to a constant less its makespan, and each is what
time was lost. A discount holds for a mean duration of a job, not for a step (a semi-Markov
decision process).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.demand import Catalogue, Floats
from partita_policies.dqn.job_arrays import subsets
from partita_policies.dqn.observation import Observation, observe
from partita_policies.dqn.offers import Offer, OfferRound
from partita_policies.dqn.prices import ThroughputCache
from partita_policies.types import GPU, Sharing
from partita_research.simulator.engine import Simulation
from partita_research.simulator.tasks import Task

__all__ = [
    "Choose",
    "DecisionPoint",
    "Episode",
    "Scenario",
    "Trajectory",
    "Transition",
    "run",
    "run_episodes",
    "transitions",
]

_NOTHING = 1e-6
"""Seconds of work below which sums differ by rounding alone."""

Choose = Callable[[Observation], NDArray[np.int64]]
"""Chooses a combination for each offer."""


class Scenario(NamedTuple):
    """A workload and the GPU that it runs on."""

    tasks: Sequence[Task]
    gpu: GPU
    sharing: Sharing = Sharing.MPS


class DecisionPoint(NamedTuple):
    """What was to be chosen from, without what was not legal."""

    state: Floats
    candidates: Floats
    """(L, CANDIDATE_FEATURES)."""
    places: NDArray[np.int64]
    """(L): which combinations they are."""
    bound: float
    """Seconds that all that is left takes at least."""
    unit: float
    """Seconds that stand for 1 in what is seen and in estimates."""


@dataclass(slots=True, eq=False)
class Trajectory:
    """What was asked, chosen and earned in one workload."""

    mean: float
    """Mean duration of its jobs, seconds."""
    decisions: list[DecisionPoint] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    """Place among the legal ones, for each ask."""
    times: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    """Seconds, and seconds of work done, at each ask and at the end."""

    @property
    def makespan(self) -> float:
        """Seconds until all was done."""
        return self.times[-1]

    @property
    def work(self) -> float:
        """Seconds of work in all."""
        return self.works[-1]

    def note(self, episode: "Episode") -> None:
        """Write down how far it is."""
        self.times.append(episode.now)
        self.works.append(episode.work_done)

    def finish(self, episode: "Episode") -> None:
        """Write down the end; what waits for ever then counts as done in turns after it."""
        self.times.append(episode.now + episode.work_left)
        self.works.append(episode.work_done + episode.work_left)

    def rewards(self) -> Floats:
        """Return the reward after each ask, seconds."""
        bounds = np.array([*(decision.bound for decision in self.decisions), 0.0])
        return (-np.diff(bounds) - np.diff(self.times)).astype(np.float32)

    def lengths(self) -> Floats:
        """Return the time after each ask, in mean durations."""
        return (np.diff(self.times) / self.mean).astype(np.float32)


class Transition(NamedTuple):
    """Some steps on from an ask."""

    decision: DecisionPoint
    action: int
    reward: float
    """In units of the ask."""
    discount: float
    """What an estimate of what follows counts here, where the unit is another; 0 at the end."""
    following: DecisionPoint | None
    """None at the end."""


def transitions(trajectory: Trajectory, steps: int, gamma: float) -> list[Transition]:
    """Add up the discounted rewards of so many asks each."""
    rewards = trajectory.rewards().astype(float).tolist()
    fades = (gamma ** trajectory.lengths().astype(float)).tolist()
    count, made = len(rewards), []
    for start in range(count):
        total, fade = 0.0, 1.0
        stop = min(start + steps, count)
        for step in range(start, stop):
            total += fade * rewards[step]
            fade *= fades[step]
        decision, action = trajectory.decisions[start], trajectory.actions[start]
        following = trajectory.decisions[stop] if stop < count else None
        fade = 0.0 if following is None else fade * following.unit / decision.unit
        made.append(Transition(decision, action, total / decision.unit, fade, following))
    return made


def run(
    scenarios: Sequence[Scenario],
    choose: Choose,
    *,
    window: int,
    mask: bool = True,
    record: bool = True,
) -> list[Trajectory]:
    """Run workloads to their ends, side by side so that all are asked in one batch.

    Parameters
    ----------
    scenarios
        Workloads that share GPUs in the same way.
    choose
        What decides; called once a round for all that are asked then.
    window
        Kinds offered at a time.
    mask
        As in `observe`.
    record
        Whether to keep what was seen; without it only makespans come back.
    """
    catalogue, throughputs = Catalogue(), ThroughputCache()
    means = [sum(t.truth.duration for t in one.tasks) / len(one.tasks) for one in scenarios]
    trajectories = [Trajectory(mean) for mean in means]

    def answer(episodes: Sequence[Episode]) -> list[list[int]]:
        offers = [episode.offer for episode in episodes]
        observation = observe(offers, catalogue, scenarios[0].sharing, throughputs, mask=mask)
        free = observation.legal.sum(axis=1) > 1
        chosen = observation.legal.argmax(axis=1)
        if free.any():
            asked = Observation(*(part[free] for part in observation))
            chosen[free] = choose(asked)
        if record:
            for row in np.flatnonzero(free).tolist():
                _record(
                    trajectories[episodes[row].number],
                    episodes[row],
                    observation,
                    row,
                    int(chosen[row]),
                )
        combinations = subsets(observation.legal.shape[1].bit_length() - 1)
        return [np.flatnonzero(combinations[place]).tolist() for place in chosen.tolist()]

    for trajectory, episode in zip(
        trajectories, run_episodes(scenarios, answer, catalogue, window), strict=True
    ):
        trajectory.finish(episode)
    return trajectories


def run_episodes(
    scenarios: Sequence[Scenario],
    answer: Callable[[Sequence["Episode"]], Sequence[Sequence[int]]],
    catalogue: Catalogue,
    window: int,
) -> list["Episode"]:
    """Run workloads to their ends, side by side.

    Parameters
    ----------
    scenarios
        The workloads.
    answer
        Says for each lane that has an offer which places of it to start; none to wait.
    catalogue
        Where demands are kept.
    window
        Kinds offered at a time.
    """
    episodes = [
        Episode(number, scenario, catalogue, window) for number, scenario in enumerate(scenarios)
    ]
    active = [episode for episode in episodes if episode.advance()]
    while active:
        for episode, places in zip(active, answer(active), strict=True):
            episode.start(places)
        active = [episode for episode in active if episode.advance()]
    return episodes


class Episode:
    """One workload on its way."""

    offer: Offer
    """What is to be decided."""

    def __init__(self, number: int, scenario: Scenario, catalogue: Catalogue, window: int) -> None:
        self.number = number
        self._simulation = Simulation(scenario.tasks, [scenario.gpu], sharing=scenario.sharing)
        self._catalogue, self._window = catalogue, window
        self._round: OfferRound | None = None

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._simulation.now

    @property
    def work_done(self) -> float:
        """Seconds of work done so far."""
        return self._simulation.work_done

    @property
    def work_left(self) -> float:
        """Seconds of work not done; at the end above 0 only where nothing forbids to wait."""
        left = self._simulation.work_total - self._simulation.work_done
        return left if left > _NOTHING else 0.0

    def advance(self) -> bool:
        """Go on until there is an offer; say whether there is one."""
        while True:
            if self._round is not None:
                offers = self._round.make_offers(self._window, 1 << self._window)
                if offers:
                    self.offer = offers[0]
                    return True
                self._simulation.apply(self._round.placements)
            snapshot = self._simulation.next_decision()
            if snapshot is None:
                return False
            self._round = OfferRound(snapshot, self._catalogue)

    def start(self, places: Sequence[int]) -> None:
        """Start the jobs at these places of the offer; with none, wait."""
        assert self._round is not None  # noqa: S101 - there was an offer
        self._round.apply([self.offer], [places])


def _record(
    trajectory: Trajectory, episode: Episode, observation: Observation, row: int, chosen: int
) -> None:
    places = np.flatnonzero(observation.legal[row])
    bound, unit = float(observation.bounds[row]), float(observation.units[row])
    decision = DecisionPoint(
        observation.states[row].copy(), observation.candidates[row, places], places, bound, unit
    )
    trajectory.decisions.append(decision)
    trajectory.actions.append(int(np.searchsorted(places, chosen)))
    trajectory.note(episode)
