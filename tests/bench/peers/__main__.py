"""`make bench-peers`: Partita beside other schedulers, with equal work in one run.

All subjects get the same etcd, kube-apiserver, kube-controller-manager and kube-scheduler, which
are real and processes of their own, and the same nodes, whose kubelets are simulated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from bench.peers.batch import batch
from bench.peers.report import Comparison, show
from bench.peers.sharing import sharing
from bench.peers.sharing_kai import kai_folder
from bench.scenes import chosen

_EXAMPLES = """\
scenes:
  batch    Jobs: Kueue with batch/v1 Jobs, beside SharedGPUJobs and batch/v1 Jobs with claims
  sharing  Pods with fractions of GPUs: Kubernetes alone (DRA), beside SharedGPUJobs and claims;
           HAMi and KAI, too, if --hami and --kai name their programs

examples:
  make bench-peers                                       everything
  make bench-peers ARGS="batch --share 0.02 --jobs 100"  a small part, to try it
  make bench-peers ARGS="batch --only burst"             2,000 jobs at once, and nothing else
  make bench-peers ARGS="sharing --pods 500 --gpus 100"  a tenth of it
  make bench-peers ARGS="sharing --only 'no throttles'"  half of it
  make bench-peers ARGS="sharing --hami ../hami --kai ../kai"  HAMi and KAI, too
"""

Tell = Callable[[str], None]
Scene = Callable[[argparse.Namespace, Tell], Iterator[Comparison]]
"""Yields each comparison when it is complete."""

SCENES: dict[str, Scene] = {"batch": batch, "sharing": sharing}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="bench.peers",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help="which: see below (default: all)"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.2,
        metavar="PART",
        help="of the 15,000 jobs of Kueue's benchmark in batch, at its pace (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2000,
        metavar="N",
        help="in batch's burst (default: %(default)s)",
    )
    parser.add_argument(
        "--pods",
        type=int,
        default=5000,
        metavar="N",
        help="in sharing (default: %(default)s)",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=1000,
        metavar="N",
        help="in sharing; five Pods a GPU leave a tenth free (default: %(default)s)",
    )
    parser.add_argument(
        "--hami",
        type=_program,
        metavar="FILE",
        help="in sharing: HAMi's scheduler, to compare it too (default: do not)",
    )
    parser.add_argument(
        "--kai",
        type=kai_folder,
        metavar="FOLDER",
        help="in sharing: KAI's programs and CRDs, to compare it too (default: do not)",
    )
    parser.add_argument(
        "--only",
        metavar="WORD",
        default="",
        help="run only the comparisons whose title has this word",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    given = parser.parse_args()
    scenes = chosen(parser, given.scenes, SCENES)
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} "
        "at the start."
    )
    found: list[Comparison] = []
    for name in scenes:
        for comparison in SCENES[name](given, _tell):
            show(comparison)
            found.append(comparison)
            if given.json:
                written = [{**asdict(one), "peers": sorted(one.peers)} for one in found]
                given.json.write_text(json.dumps(written, indent=2) + "\n")
    print(f"Load {os.getloadavg()[0]:.1f} at the end.")


def _program(text: str) -> Path:
    path = Path(text)
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{text} is no file that can be run")
    return path


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
