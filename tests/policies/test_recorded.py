import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from partita_policies import Placement
from partita_policies.check_cases import one_small_job
from partita_policies.recordings import (
    Decision,
    Recorded,
    RejectedLine,
    dump_record,
    load_record,
    read_recordings,
)
from support.strategies import snapshots

SNAPSHOT = one_small_job()
DECISION = Decision("sjf", (Placement("job", ("gpu",)),), "no idea", 0.25)


def line(snapshot=SNAPSHOT, decision=DECISION) -> bytes:
    return b"".join(dump_record(snapshot, decision))


def refusals(path: Path) -> list[str]:
    return [str(found) for found in read_recordings([path]) if isinstance(found, RejectedLine)]


@given(snapshots())
def test_a_decision_comes_back_as_it_was(snapshot):
    text = line(snapshot)
    assert text.count(b"\n") == 1
    assert load_record(json.loads(text)) == (snapshot, DECISION)


def test_files_and_folders_are_read_in_the_order_of_their_names(tmp_path):
    late = replace(SNAPSHOT, time=2.0)
    (tmp_path / "2.jsonl").write_bytes(line(late))
    with gzip.open(tmp_path / "1.jsonl.gz", "wb") as packed:
        packed.write(line() + b"\n" + line())
    (tmp_path / ".3.jsonl.gz").write_bytes(b"being written")
    (tmp_path / "notes.txt").write_text("not a recording")
    found = list(read_recordings([tmp_path, tmp_path / "2.jsonl"]))
    one, two = str(tmp_path / "1.jsonl.gz"), str(tmp_path / "2.jsonl")
    assert found == [
        Recorded(one, 1, SNAPSHOT, DECISION),
        Recorded(one, 3, SNAPSHOT, DECISION),
        Recorded(two, 1, late, DECISION),
        Recorded(two, 1, late, DECISION),
    ]


def test_a_line_that_was_cut_off_is_told_and_the_others_are_read(tmp_path):
    path = tmp_path / "torn.jsonl"
    for length in (1, 40, len(line()) - 2):
        path.write_bytes(line() + line()[:length])
        first, second = read_recordings([path])
        assert isinstance(first, Recorded)
        assert str(second).startswith(f"{path}:2: cut off")


def test_a_compressed_file_that_was_cut_off_is_told_where(tmp_path):
    path = tmp_path / "torn.jsonl.gz"
    whole = gzip.compress(line() * 50)
    path.write_bytes(whole[:-20])
    *found, last = read_recordings([path])
    assert all(isinstance(one, Recorded) for one in found)
    assert str(last).startswith(f"{path}:{len(found) + 1}: the file is damaged from here on")
    path.write_bytes(b"plain text")
    assert refusals(path) == [
        f"{path}:1: the file is damaged from here on: Not a gzipped file (b'pl')"
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"complete": False}, "the snapshot is incomplete: a listing had failed"),
        ({"schema": 1}, "a snapshot of version 3 was expected, not 1; read it with the release"),
        ({"jobs": None}, "jobs: "),
        ({"decision": None}, "missing: decision"),
        ({"decision": {"policy": "sjf"}}, "decision.placements: Field required"),
        ({"time": float("nan")}, "time: "),
        ({"decision": {"policy": "x", "placements": [], "seconds": -1}}, "decision.seconds: "),
    ],
)
def test_what_must_not_be_replayed_is_refused_by_file_and_line(tmp_path, change, said):
    path = tmp_path / "bad.jsonl"
    bad = json.dumps({**json.loads(line()), **change}).encode() + b"\n"
    path.write_bytes(line() + bad + line())
    first, second, third = read_recordings([path])
    assert isinstance(first, Recorded)
    assert isinstance(third, Recorded)
    assert str(second).startswith(f"{path}:2: ")
    assert said in str(second)


@pytest.mark.parametrize("text", [b"[]\n", b"{]\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_json_object_is_refused(tmp_path, text):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text)
    (said,) = refusals(path)
    assert said.startswith(f"{path}:1: ")


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read_recordings([tmp_path / "nothing.jsonl"]))
