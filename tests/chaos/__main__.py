"""`make test-chaos`: kill and break everything at random, and judge the whole history."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from apiserver.build import assets
from apiserver.rights import install_rights
from chaos.chaos_cluster import ChaosCluster, running_cluster
from chaos.plan import FAULTS, KILLS, Round, make_plan
from chaos.plane import ChaosPlane
from chaos.run import FailedRoundError, run_round, take_down

KILLS_SHORT, FAULTS_SHORT = 10, 50
PER_ROUND = 60
PROBLEMS = 50
"""Problems that are printed; all have the same cause, as a rule."""


def say(text: str) -> None:
    """Tell how it goes."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)


async def chaos(plane: ChaosPlane, folder: Path, rounds: list[Round]) -> list[str]:
    """Carry all rounds out; return the problems, of the first round that has any."""
    async with running_cluster(plane, folder) as cluster:
        try:
            for planned in rounds:
                await run_round(cluster, planned, say)
            problems = [*await take_down(cluster), *cluster.operators.odd]
        except FailedRoundError as failed:
            say(f"round {failed.number} has failed")
            _write_down(cluster, folder)
            problems = failed.problems
        _tell(cluster)
    return problems


def _tell(cluster: ChaosCluster) -> None:
    """Print what has happened."""
    faults = cluster.faults
    for title, kinds in (("kills", KILLS), ("faults", FAULTS)):
        happened = {kind: faults.happened[kind] for kind in kinds if faults.happened[kind]}
        nothing = sum(faults.came_to_nothing[kind] for kind in kinds)
        print(f"{sum(happened.values())} {title} ({nothing} more met nothing): {happened}")


def _write_down(cluster: ChaosCluster, folder: Path) -> None:
    """Write every version of the round, in order, for whoever looks for the cause."""
    entries = sorted(
        (version.number, plural, version.kind, version.at, version.body)
        for plural in cluster.history.plurals
        for life in cluster.history.lives(plural)
        for version in life
    )
    with (folder / "history.jsonl").open("w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def main() -> int:
    """Run; return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="make test-chaos ARGS=...", description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--kills", type=int, default=KILLS_SHORT)
    parser.add_argument("--faults", type=int, default=FAULTS_SHORT)
    parser.add_argument("--per-round", type=int, default=PER_ROUND, help="steps of a round")
    asked = parser.parse_args()
    rounds = make_plan(asked.seed, asked.kills, asked.faults, asked.per_round)
    command = (
        f'make test-chaos ARGS="--seed {asked.seed} --kills {asked.kills} '
        f'--faults {asked.faults} --per-round {asked.per_round}"'
    )
    kinds = Counter(step.action.kind for planned in rounds for step in planned.steps)
    jobs = sum(1 for planned in rounds for _ in planned.jobs)
    say(f"{command}: {jobs} jobs, {len(kinds)} kinds of kills and faults")
    folder = Path(tempfile.mkdtemp(prefix="partita-chaos-"))
    began = time.monotonic()
    binaries = assets()
    with ChaosPlane(binaries) as plane:
        install_rights(binaries / "kubectl", plane.kubeconfig)
        say("the control plane runs")
        problems = asyncio.run(chaos(plane, folder, rounds))
    if problems:
        print("\n".join(problems[:PROBLEMS]))
        print(f"{len(problems)} problems. All logs, actions and versions are in {folder}.")
        print(f"Again: {command}")
        return 1
    say(f"nothing was wrong, in {time.monotonic() - began:.0f} s. Again: {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
