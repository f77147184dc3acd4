"""Measures how well expected starts come true: coverage and width of 90 % intervals, and errors.

Arrivals are held out: nothing in `partita_policies.start_times` was chosen on these seeds, nor on
openb, whose run times differ from the requested ones as those of the other jobs. The moving average
of the last 20 waits is corrected in the same way, by the same jobs. Of the changes that `partita
when` would name, it counts those that come true in the same futures and in a second run.
"""

from dataclasses import replace
from random import Random
from statistics import fmean, median

from bench import harness
from bench.expected_starts import Evaluation
from bench.policies.scenes import NOISE, Scene, World, rate, traces, world

EXAMPLES = '  make bench-starts ARGS="--policy sjf --starts 10000"'
FIRST_SEED = 700
JOBS, GPUS = 400, 2
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
        found = Evaluation()
        for number in range(_TRACED // JOBS if scene.family == "openb" else given.starts):
            drawn = _world(scene, number)
            found.predict_starts(drawn, given.policy)
            found.try_changes(drawn, given.policy)
            starts = len(found.futures.held)
            if starts and starts * (len(SCENES) - place) >= wanted:
                break
        wanted -= starts
        _print(scene, found)


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


def _print(scene: Scene, found: Evaluation) -> None:
    one, other = found.futures, found.average
    width, error = median(one.widths), median(one.errors)
    cells = [
        f"{len(one.held)} | {found.unsaid} | {fmean(one.held):.1%} ({fmean(other.held):.1%})",
        f"{width:.0f} s | {width / median(other.widths):.0%}",
        f"{error:.0f} s | {error / median(other.errors):.0%} | {found.seconds:.0f} s",
        found.named,
        *[f"{n / (found.named or 1):.0%}" for n in (found.in_futures, found.sooner, found.in_run)],
    ]
    print(f"| {scene.name}", *cells, sep=" | ", end=" |\n", flush=True)


if __name__ == "__main__":
    main()
