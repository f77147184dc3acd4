"""`make bench-scale`: Kueue's scheduler benchmark, with SharedGPUJobs.

30 partitions of 20 units each get 15,000 jobs: 350 small ones, 100 medium and 50 large a
partition, at the pace at which Kueue's benchmark makes workloads. etcd, kube-apiserver and the
operator are real and processes of their own; nodes, GPUs and kubelet are simulated by this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from apiserver.build import assets
from bench import flood, harness
from bench.compare import Contest, measured
from bench.jobs import SharedJobs
from bench.kueue_benchmark import kueue_checkout, run_kueue
from bench.load import burst, paced
from bench.nodes import Nodes
from bench.report import Comparison, Targets, show
from bench.shape import PARTITIONS, shrunk
from bench.stage import UNLIMITED, Plane

if TYPE_CHECKING:
    from bench.report import Run
    from bench.stage import Throttles

EXAMPLES = """\
  make bench-scale                              all 15,000 jobs, with their Pods
  make bench-scale ARGS=--no-pods               what Kueue's benchmark does: admission alone
  make bench-scale ARGS="--share 0.01"          a hundredth of the jobs, to try it
  make bench-scale ARGS="--flood jobs"          others beside 10,000 jobs of one namespace
  git clone --depth 1 --branch v0.19.2 https://github.com/kubernetes-sigs/kueue /tmp/kueue
  make bench-scale ARGS="--kueue /tmp/kueue"    with Pods, without, Kueue's own, and the ratios
"""
TARGETS = Targets(wall=0.5, memory={"manager": 250})


class _UnscheduledPlane(Plane):
    """envtest, on which Kueue's benchmark runs, has neither kube-scheduler nor controllers."""

    scheduler = False
    controllers = "namespace-controller"

    @override
    def scheduler_flags(self) -> list[str]:
        return []


class _Jobs(SharedJobs):
    """SharedGPUJobs of which nodes start the Pods without kube-scheduler, or that have none."""

    nodes = Nodes

    def __init__(self, *, pods: bool) -> None:
        self.name = f"Partita, {'with' if pods else 'without'} Pods"
        self.module = "partita" if pods else "bench.without_pods"

    @override
    def plane(self, throttles: Throttles) -> Plane:
        return _UnscheduledPlane(assets(), throttles)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("scale", __doc__, EXAMPLES)
    parser.add_argument(
        "--no-pods",
        action="store_true",
        help="leave out the writes of Pods and their claims, as Kueue's benchmark does",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        metavar="PART",
        help="submit only this part of the jobs, at the same pace, to try it (default: 1)",
    )
    parser.add_argument(
        "--kueue",
        type=kueue_checkout,
        metavar="FOLDER",
        help="run without Pods as well, then build and run the benchmark of this checkout of Kueue, "
        "and compare",
    )
    parser.add_argument("--flood", choices=flood.KINDS, help="measure how a flood slows others")
    parser.add_argument("--number", type=int, default=10_000, help="size of the flood")
    parser.add_argument("--probes", type=int, default=50, help="least samples of each phase")
    parser.add_argument("--turns", type=int, default=2, help="how often the phases alternate")
    given = parser.parse_args()
    if given.flood:
        flood.measure(given.flood, given.number, given.probes, given.turns)
        return
    classes = shrunk(given.share)
    names = [f"partition-{number}" for number in range(PARTITIONS)]
    works = paced(names, classes)
    title = f"{len(works)} jobs at the pace of Kueue's benchmark"
    if given.share != 1:
        title += f" (only {given.share:g} of it: no figures to compare with others)"
    kinds = [False] if given.no_pods else [True, False] if given.kueue else [True]
    subjects = [_Jobs(pods=pods) for pods in kinds]
    warm = burst(names, len(names), named="warm")
    contest = Contest(title, subjects, UNLIMITED, works, PARTITIONS, TARGETS, warm)
    runs = []
    for subject in subjects:
        harness.tell(subject.name)
        runs.append(_renamed(measured(subject, contest)))
    peers: frozenset[str] = frozenset()
    if given.kueue:
        runs.append(run_kueue(given.kueue, len(works), given.share))
        peers = frozenset({runs[-1].subject})
        theirs = runs[-1].used["manager"].cpu
        for run in runs:
            run.figures["manager's CPU, relative to Kueue's"] = run.used["manager"].cpu / theirs
    print(f"{harness.machine()} at the end.")
    show(Comparison(title, runs, peers, TARGETS))
    if peers:
        print(
            "Kueue's benchmark says nothing of the CPU of etcd and kube-apiserver. It makes no Pods, and "
            "preempts and borrows where Partita does not."
        )


def _renamed(run: Run) -> Run:
    """Let the operator stand beside Kueue's manager."""
    run.used["manager"] = run.used.pop("operator")
    return run


if __name__ == "__main__":
    main()
