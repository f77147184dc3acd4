"""Measures how well expected starts come true: coverage and width of 90 % intervals, and errors.

Arrivals are held out: nothing in `partita_policies.start_times` was chosen on these seeds, nor on
openb, whose run times differ from the requested ones as those of the other jobs. The moving average
of the last 20 waits is corrected in the same way, by the same jobs. Of the changes that `partita
when` would name, it counts those that come true in the same futures and in a second run.
"""

from dataclasses import replace
from random import Random

from bench import harness
from bench.policies.scenes import NOISE, Scene, World, rate, traces, world
from partita_research.start_times import Evaluation, evaluate
from partita_research.suggested_changes import SuggestedChanges, check_suggestions

EXAMPLES = '  make bench-starts ARGS="--policy sjf --starts 10000"'
FIRST_SEED = 700
JOBS, GPUS, EVERY = 400, 2, 3
_TRACED = 7064
"""Tasks of openb for the GPUs of the scene."""
SCENES = (
    *([Scene("openb", JOBS, 16, "own", 0.85)] if traces() else []),
    *(Scene("random", JOBS, GPUS, "poisson", load) for load in (0.6, 0.85, 1.1)),
    Scene("random", JOBS, GPUS, "bursts", 0.85),
    Scene("mix", JOBS, GPUS, "diurnal", 0.85),
)
HEAD = "| arrivals | starts | unsaid | hold | width | of average's | error | of average's | CPU | changes | in futures | sooner | by the time said |"


def main() -> None:
    """Print a line for each scene, as a table of Markdown."""
    parser = harness.parser("starts", __doc__, EXAMPLES)
    parser.add_argument("--policy", default="tetris", help="(default: %(default)s)")
    parser.add_argument("--starts", type=int, default=3000, help="(default: %(default)s)")
    given = parser.parse_args()
    print(HEAD, "| --- " + "| --: " * 12 + "|", sep="\n")
    wanted = given.starts
    for place, scene in enumerate(SCENES):
        found, changes = Evaluation(), SuggestedChanges()
        for number in range(_TRACED // JOBS if scene.family == "openb" else given.starts):
            drawn = _world(scene, number)
            jobs = drawn.tasks, drawn.gpus, given.policy
            evaluate(*jobs, nodes=drawn.nodes, every=EVERY, into=found)
            check_suggestions(*jobs, nodes=drawn.nodes, into=changes)
            starts = len(found.futures.starts)
            if starts and starts * (len(SCENES) - place) >= wanted:
                break
        wanted -= starts
        _print(scene, found, changes)


def _world(scene: Scene, number: int) -> World:
    if scene.family != "openb":
        seed = FIRST_SEED + number
        return world(scene, seed, rate(scene.family, seed))
    drawn, random = world(scene, number), Random(f"openb {number}")
    factors = [random.uniform(1 - NOISE, 1 + NOISE) for _ in drawn.tasks]
    tasks = [
        replace(task, truth=replace(task.truth, duration=factor * task.truth.duration))
        for task, factor in zip(drawn.tasks, factors, strict=True)
    ]
    return drawn._replace(tasks=tasks)


def _print(scene: Scene, found: Evaluation, changes: SuggestedChanges) -> None:
    one, other = found.futures, found.average
    hold = f"{len(one.starts)} | {found.unsaid} | {one.coverage:.1%} ({other.coverage:.1%})"
    width = f"{one.width:.0f} s | {one.width / other.width:.0%}"
    error = f"{one.error:.0f} s | {one.error / other.error:.0%} | {found.seconds:.0f} s"
    tried = " | ".join(f"{one / (changes.named or 1):.0%}" for one in changes.came_true)
    row = f"{scene.name} | {hold} | {width} | {error} | {changes.named} | {tried}"
    print(f"| {row} |", flush=True)


if __name__ == "__main__":
    main()
