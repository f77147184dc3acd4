"""`make bench-peers`: Partita beside other schedulers, with equal work in one run.

All subjects get the same etcd, kube-apiserver, kube-controller-manager and kube-scheduler, which
are real and processes of their own, and the same nodes, whose kubelets are simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import harness
from bench.compare import Contest, compared
from bench.peers.batch import batch
from bench.peers.kai import kai_folder
from bench.peers.sharing import sharing
from bench.report import show

EXAMPLES = """\
  make bench-peers                                       everything
  make bench-peers ARGS="batch --share 0.02 --jobs 100"  a small part, to try it
  make bench-peers ARGS="batch --only burst"             2,000 jobs at once, and nothing else
  make bench-peers ARGS="sharing --pods 500 --gpus 100"  a tenth of it
  make bench-peers ARGS="sharing --only 'no throttles'"  half of it
  make bench-peers ARGS="sharing --hami ../hami --kai ../kai"  HAMi and KAI, too

scenes:
  batch    Jobs: Kueue with batch/v1 Jobs, beside SharedGPUJobs and batch/v1 Jobs with claims
  sharing  Pods with fractions of GPUs: Kubernetes alone (DRA), beside SharedGPUJobs and claims;
           HAMi and KAI, too, if --hami and --kai name their programs
"""
SCENES: dict[str, Callable[[argparse.Namespace], Iterator[Contest]]] = {
    "batch": batch,
    "sharing": sharing,
}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("peers", __doc__, EXAMPLES)
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help="which: see below (default: all)"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.2,
        metavar="PART",
        help="in batch, of the 15,000 jobs of Kueue's benchmark at its pace (default: %(default)s)",
    )
    for option, default, help_text in (
        ("--jobs", 2000, "in batch's burst"),
        ("--pods", 5000, "in sharing"),
        ("--gpus", 1000, "in sharing; five Pods a GPU leave a tenth free"),
    ):
        harness.add_number(parser, option, default, help_text)
    parser.add_argument(
        "--hami",
        type=Path,
        metavar="FILE",
        help="in sharing: HAMi's scheduler, to compare it too (tests/bench/peers/hami.py)",
    )
    parser.add_argument(
        "--kai",
        type=kai_folder,
        metavar="FOLDER",
        help="in sharing: KAI's programs and CRDs, to compare it too (tests/bench/peers/kai.py)",
    )
    parser.add_argument(
        "--only",
        metavar="WORDS",
        default="",
        help="run only the comparisons whose title has these words",
    )
    given = parser.parse_args()
    if unknown := sorted(set(given.scenes).difference(SCENES)):
        parser.error(f"there is no scene {', '.join(unknown)}; there are {', '.join(SCENES)}")
    contests = [one for name in given.scenes or SCENES for one in SCENES[name](given)]
    chosen = [one for one in contests if given.only in one.title]
    if not chosen:
        titles = "\n  ".join(one.title for one in contests)
        parser.error(f"no comparison has {given.only!r} in its title; there are\n  {titles}")
    print(f"{harness.machine()} at the start.")
    for contest in chosen:
        show(compared(contest))
    print(f"{harness.machine()} at the end.")


if __name__ == "__main__":
    main()
