"""`partita replay`, on recordings made here."""

import gzip
import json
import re
from dataclasses import replace

import pytest

from partita_policies import GPU, Job, Objective, Placement, Snapshot
from partita_policies.fifo import FIFO, FIFOParameters
from partita_policies.recordings import Decision, Recorded, dump_record
from partita_research.replay import Replay

JOBS = tuple(
    Job(f"uid-{name}", f"team/{name}", "team", memory=6 << 30, duration=minutes * 60.0)
    for name, minutes in (("long", 9), ("short", 1))
)
SNAPSHOT = Snapshot("gold", 1_700_000_000.0, JOBS, (GPU("gold-0", "node", 8 << 30, 4),))
STARTED = Decision("fifo", (Placement("uid-long", ("gold-0",)),), seconds=0.001)
NOTHING = Decision("fifo", (), "policy dqn raised ValueError: NaN")


def line(snapshot=SNAPSHOT, decision=STARTED) -> bytes:
    return b"".join(dump_record(snapshot, decision))


@pytest.fixture
def folder(tmp_path):
    """Two files of three decisions in all, and a line that was cut off."""
    (tmp_path / "1_gold.jsonl.gz").write_bytes(gzip.compress(line() + line(decision=NOTHING)))
    later = replace(SNAPSHOT, time=SNAPSHOT.time + 60, partition="silver")
    (tmp_path / "2_silver.jsonl").write_bytes(line(later) + line()[:99])
    return tmp_path


def test_what_would_have_changed_is_told(invoke, folder, text_golden):
    args = ("replay", folder, "-p", "sjf", "-p", "fifo")
    result = invoke(*args)
    times = re.compile(r"( +[\d.]+ m?s){2}$|  +Mean +p99$", re.MULTILINE)  # of this machine
    text_golden("replay.txt", times.sub("", result.stdout))
    cut = f"{folder / '2_silver.jsonl'}:2: cut off: the operator was ended while it wrote this line"
    assert cut in result.stderr
    document = json.loads(invoke(*args, "-o", "json").stdout)
    sjf, fifo = document["policies"]
    assert (document["decisions"], document["fallbacks"]) == (3, 1)
    assert document["recorded"] == {"fifo": 3}
    assert (sjf["same"], fifo["same"]) == (0, 2)
    assert (sjf["waits"]["jobs"], fifo["waits"]) == (6, {"jobs": 6, "meanChange": 0.0})
    assert -300 < sjf["waits"]["meanChange"] < -180  # minutes: (1 + 0) / 2 instead of (0 + 9) / 2
    assert sjf["changed"] == {"earlier": 3, "later": 2, "elsewhere": 0, "others": 0}
    assert [d["changes"] for d in fifo["different"]] == [
        [{"job": "team/long", "kind": "earlier", "done": [], "instead": ["gold-0"]}]
    ]
    assert [(r["line"], r["reason"][:7]) for r in document["refused"]] == [(2, "cut off")]


def test_another_objective_than_the_recorded_one_can_be_asked_for(tmp_path):
    class OnlyPacks(FIFO):
        def decide(self, snapshot):
            return super().decide(snapshot) if snapshot.objective is Objective.PACKING else []

    recorded = Recorded("file", 1, SNAPSHOT, STARTED)
    as_recorded = Replay("packs", OnlyPacks(FIFOParameters()))
    packing = Replay("packs", OnlyPacks(FIFOParameters()), Objective.PACKING)
    for replay in (as_recorded, packing):
        replay.ask(recorded)
    assert (as_recorded.started, packing.started) == (0, 1)


def test_so_many_are_shown(invoke, folder):
    asked = ("replay", folder, "-p", "sjf", "--objective", "Packing", "--show")
    assert "and 2 more that differ" in invoke(*asked, 1).stdout
    assert "instead of" not in invoke(*asked, 0).stdout


def test_incomplete_and_foreign_snapshots_are_named_and_left_out(invoke, tmp_path):
    path = tmp_path / "mixed.jsonl"
    old = json.dumps({**json.loads(line()), "schema": 0}).encode() + b"\n"
    path.write_bytes(line(replace(SNAPSHOT, complete=False)) + old * 6 + line())
    result = invoke("replay", path, "-p", "fifo", "-o", "json")
    assert f"{path}:1: the snapshot is incomplete" in result.stderr
    assert f"{path}:2: schema: a snapshot of version 3 was expected, not 0" in result.stderr
    assert "2 more lines are skipped" in result.stderr
    document = json.loads(result.stdout)
    assert (document["decisions"], len(document["refused"])) == (1, 7)


def test_without_a_decision_it_says_how_to_record_some(invoke, tmp_path):
    result = invoke("replay", tmp_path, code=1)
    assert f"no decision to replay in {tmp_path}" in result.stderr
    assert "partita run --record FOLDER" in result.stderr
