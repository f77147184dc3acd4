"""Measures how well expected starts come true: coverage and width of 90 % intervals, and errors.

Arrivals are held out: nothing in `partita_policies.start_times` was chosen on these seeds. The
moving average of the last 20 waits is corrected in the same way, by the same jobs.
"""

from bench import harness
from bench.policies.scenes import Scene, rate, world
from partita_research.start_times import Evaluation, evaluate

EXAMPLES = '  make bench-starts ARGS="--policy sjf --seeds 1"'
SCENES = (("poisson", 0.6), ("poisson", 0.85), ("poisson", 1.1), ("bursts", 0.85))
FIRST_SEED = 700
JOBS, GPUS, EVERY = 600, 2, 3
HEAD = "| arrivals | starts | unsaid | hold | width | of average's | error | of average's | CPU |"


def main() -> None:
    """Print a line for each scene, as a table of Markdown."""
    parser = harness.parser("starts", __doc__, EXAMPLES)
    parser.add_argument("--policy", default="tetris", help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="(default: %(default)s)")
    given = parser.parse_args()
    print(HEAD, "| --- " + "| --: " * 8 + "|", sep="\n")
    for pattern, load in SCENES:
        found = Evaluation()
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
            drawn = world(Scene("random", JOBS, GPUS, pattern, load), seed, rate("random", seed))
            evaluate(drawn.tasks, drawn.gpus, given.policy, every=EVERY, into=found)
        one, other = found.futures, found.average
        hold = f"{len(one.starts)} | {found.unsaid} | {one.coverage:.1%} ({other.coverage:.1%})"
        width = f"{one.width:.0f} s | {one.width / other.width:.0%}"
        error = f"{one.error:.0f} s | {one.error / other.error:.0%} | {found.seconds:.0f} s"
        print(f"| {pattern} {load:.0%} | {hold} | {width} | {error} |", flush=True)


if __name__ == "__main__":
    main()
