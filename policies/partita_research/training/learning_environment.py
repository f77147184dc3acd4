"""Training environment: simulated workloads on one GPU each, many in parallel.

A decision is a choice among the combinations of one offer. Time can pass between two decisions.
The reward is the decrease of the lower bound of the remaining time (`prices`), less the elapsed
seconds. Thus each reward is minus the time lost, and the rewards of a workload sum up to a constant
less its makespan. The discount applies to a mean job duration, not to a step (a semi-Markov
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
"""Seconds of work below which a difference is a rounding error."""

Choose = Callable[[Observation], NDArray[np.int64]]
"""Chooses a combination for each offer."""


class Scenario(NamedTuple):
    """A workload and its GPU."""

    tasks: Sequence[Task]
    gpu: GPU
    sharing: Sharing = Sharing.MPS


class DecisionPoint(NamedTuple):
    """The input of a decision, with the legal combinations only."""

    state: Floats
    candidates: Floats
    """(L, CANDIDATE_FEATURES)."""
    places: NDArray[np.int64]
    """(L): indices of the combinations."""
    bound: float
    """Lower bound of the remaining time, seconds."""
    unit: float
    """Seconds that correspond to 1 in features and estimates."""


@dataclass(slots=True, eq=False)
class Trajectory:
    """The decisions, actions and rewards of one workload."""

    mean: float
    """Mean duration of its jobs, seconds."""
    decisions: list[DecisionPoint] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    """Index among the legal combinations, for each decision."""
    times: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    """Seconds of work done; like `times` (seconds), for each decision and the end."""

    @property
    def makespan(self) -> float:
        """Seconds until all jobs were done."""
        return self.times[-1]

    @property
    def work(self) -> float:
        """Total seconds of work."""
        return self.works[-1]

    def note(self, episode: "Episode") -> None:
        """Record the time and the work done."""
        self.times.append(episode.now)
        self.works.append(episode.work_done)

    def finish(self, episode: "Episode") -> None:
        """Record the end; jobs that never start count as run one after the other after it."""
        self.times.append(episode.now + episode.work_left)
        self.works.append(episode.work_done + episode.work_left)

    def rewards(self) -> Floats:
        """Return the reward after each decision, seconds."""
        bounds = np.array([*(decision.bound for decision in self.decisions), 0.0])
        return (-np.diff(bounds) - np.diff(self.times)).astype(np.float32)

    def lengths(self) -> Floats:
        """Return the time after each decision, in mean durations."""
        return (np.diff(self.times) / self.mean).astype(np.float32)


class Transition(NamedTuple):
    """A decision, and the state some steps later."""

    decision: DecisionPoint
    action: int
    reward: float
    """In the unit of the decision."""
    discount: float
    """Factor of the estimate for `following`, including the change of unit; 0 at the end."""
    following: DecisionPoint | None
    """None at the end."""


def transitions(trajectory: Trajectory, steps: int, gamma: float) -> list[Transition]:
    """Return the transitions over `steps` decisions each, with the sum of discounted rewards."""
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
    """Run workloads to their ends in parallel, so that their decisions form batches.

    Parameters
    ----------
    scenarios
        Workloads with the same kind of sharing.
    choose
        Function that decides; called once in a round for all offers of the round.
    window
        Kinds in an offer.
    mask
        As in `observe`.
    record
        Whether to record decisions; if not, trajectories have only the time and work at the end.
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
    """Run workloads to their ends in parallel.

    Parameters
    ----------
    scenarios
        The workloads.
    answer
        Function that returns the places to start for the offer of each active episode; none to
        wait.
    catalogue
        Cache of demands.
    window
        Kinds in an offer.
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
    """The simulation of one workload."""

    offer: Offer
    """The current offer."""

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
        """Seconds of work not done; above 0 at the end only if waiting is always permitted."""
        left = self._simulation.work_total - self._simulation.work_done
        return left if left > _NOTHING else 0.0

    def advance(self) -> bool:
        """Simulate until the next offer; return whether there is one."""
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
