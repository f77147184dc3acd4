"""Measures how well expected starts come true: coverage and width of 90 % intervals, and errors.

Arrivals are held out: nothing in `partita_policies.start_times` was chosen on these seeds. The
moving average of the last 20 waits is corrected in the same way, by the same jobs.
"""

from bench import harness
from bench.policies.scenes import Scene, rate, world
from partita_research.start_times import Evaluation, evaluate

EXAMPLES = """\
  make bench-starts                                    all scenes
  make bench-starts ARGS="--policy sjf --jobs 200"     another policy, fewer jobs
"""
SCENES = (("poisson", 0.6), ("poisson", 0.85), ("poisson", 1.1), ("bursts", 0.85))
FIRST_SEED = 700


def main() -> None:
    """Print a line for each scene, as a table of Markdown."""
    parser = harness.parser("starts", __doc__, EXAMPLES)
    parser.add_argument("--policy", default="tetris", help="(default: %(default)s)")
    parser.add_argument("--family", default="random", help="(default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=600, help="of each seed (default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="(default: %(default)s)")
    parser.add_argument("--every", type=int, default=8, help="decisions (default: %(default)s)")
    given = parser.parse_args()
    print(
        "| arrivals | starts | unsaid | hold | width | of average's | error | of average's | CPU |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for pattern, load in SCENES:
        found = Evaluation()
        for seed in range(given.first, given.first + given.seeds):
            scene = Scene(given.family, given.jobs, given.gpus, pattern, load)
            drawn = world(scene, seed, rate(given.family, seed))
            evaluate(
                drawn.tasks,
                drawn.gpus,
                given.policy,
                nodes=drawn.nodes,
                every=given.every,
                into=found,
            )
        print(_line(f"{pattern} {load:.0%}", found), flush=True)


def _line(name: str, found: Evaluation) -> str:
    one, other = found.futures, found.average
    if not one.starts:
        return f"| {name} | 0 | {found.unsaid} | | | | | | {found.seconds:.0f} s |"
    return (
        f"| {name} | {len(one.starts)} | {found.unsaid} | {one.coverage:.1%} ({other.coverage:.1%}) "
        f"| {one.width:.0f} s | {one.width / other.width:.0%} | {one.error:.0f} s "
        f"| {one.error / other.error:.0%} | {found.seconds:.0f} s |"
    )


if __name__ == "__main__":
    main()
