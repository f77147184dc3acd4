"""A folder of recordings stays bounded, whatever comes and whatever fails."""

import errno
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.process.recording_files import RecordingFiles


def clock() -> Iterator[datetime]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    yield from (start + timedelta(seconds=n) for n in count())


def files(folder, limit: int = 64_000, **most: int) -> RecordingFiles:
    times = clock()
    return RecordingFiles(folder, limit=limit, now=lambda: next(times), **most)


def lines(folder) -> list[bytes]:
    """All lines in the order of the files' names."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        found += (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    return found


def test_each_partition_has_a_file_named_by_time_and_partition(tmp_path):
    written = files(tmp_path / "new" / "folder")
    written.write("gold", [b"1", b"\n"])
    written.write("silver", [b"2\n"])
    written.write("gold", [b"3\n"])
    written.close()
    found = {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert found == {
        "20260101T000000.000000Z_gold.jsonl": b"1\n3\n",
        "20260101T000001.000000Z_silver.jsonl": b"2\n",
    }


def test_a_full_file_is_compressed_and_the_next_line_starts_another(tmp_path):
    written = files(tmp_path, limit=64 * 100)
    for n in range(3):
        written.write("gold", [b"%d" % n * 99, b"\n"])
    written.write("gold", [b"last\n"])
    written.close()
    assert [path.name.partition("_")[2] for path in sorted(tmp_path.iterdir())] == [
        "gold.jsonl.gz",
        "gold.jsonl.gz",
        "gold.jsonl.gz",
        "gold.jsonl",
    ]
    assert lines(tmp_path) == [b"0" * 99, b"1" * 99, b"2" * 99, b"last"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["gold", "silver", "tin"]), st.binary(min_size=1, max_size=400)),
        max_size=60,
    )
)
def test_the_folder_never_exceeds_its_limit(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("recording")
    limit = 6400
    recording = files(folder, limit=limit)
    for partition, data in written:
        recording.write(partition, [data])
        assert sum(path.stat().st_size for path in folder.iterdir()) <= limit
    recording.close()


def test_the_oldest_of_the_largest_partition_goes_first(tmp_path):
    for name, size in [("1_b", 25), ("2_a", 10), ("3_a", 30), ("4_a", 10)]:
        (tmp_path / f"{name}.jsonl").write_bytes(b"x" * size)
    written = files(tmp_path, limit=67)  # room for 66 beside the file that is opened
    written.write("c", [b"\n"])
    written.close()
    left = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert left - {"20260101T000000"} == {"1_b", "3_a", "4_a"}


def test_their_number_is_bounded_too(tmp_path):
    written = files(tmp_path, limit=1 << 20, most_files=5)
    for n in range(12):
        written.write("gold", [b"%d\n" % n])
        written.close()
        assert len(list(tmp_path.iterdir())) <= 5
    assert lines(tmp_path)[-1] == b"11"


def test_only_so_many_are_open_and_the_one_used_longest_ago_is_closed(tmp_path):
    written = files(tmp_path, most_open=2)
    for partition in ("a", "b", "a", "c"):
        written.write(partition, [b"%s\n" % partition.encode()])
    assert sorted(path.name.partition("_")[2] for path in tmp_path.iterdir()) == [
        "a.jsonl",
        "b.jsonl.gz",
        "c.jsonl",
    ]
    written.close()


def failing(error: Exception) -> Iterator[bytes]:
    yield b"half a li"
    raise error


def test_of_a_line_that_could_not_be_written_nothing_stays(tmp_path):
    written = files(tmp_path)
    written.write("gold", [b"1\n"])
    assert lines(tmp_path) == [b"1"]  # on the disk once it is written
    for error in (OSError(errno.ENOSPC, "full"), ValueError("nan")):
        with pytest.raises(type(error)):
            written.write("gold", failing(error))
    assert lines(tmp_path) == [b"1"]
    written.write("gold", [b"2\n"])
    written.close()
    assert lines(tmp_path) == [b"1", b"2"]
    assert len(list(tmp_path.iterdir())) == 2


def test_no_file_is_opened_twice(tmp_path):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    one, other = (RecordingFiles(tmp_path, limit=1 << 20, now=lambda: now) for _ in range(2))
    one.write("gold", [b"1\n"])
    with pytest.raises(FileExistsError):
        other.write("gold", [b"2\n"])
    one.close()
    assert lines(tmp_path) == [b"1"]


def test_what_was_left_between_compressing_and_removing_is_cleaned_up(tmp_path):
    (tmp_path / "1_gold.jsonl").write_bytes(b"1\n")
    (tmp_path / "1_gold.jsonl.gz").write_bytes(gzip.compress(b"1\n"))
    (tmp_path / "notes.txt").write_text("somebody else's")
    written = files(tmp_path)
    written.write("gold", [b"2\n"])
    written.close()
    assert not (tmp_path / "1_gold.jsonl").exists()
    assert (tmp_path / "1_gold.jsonl.gz").exists()
    assert (tmp_path / "notes.txt").exists()


def test_a_partition_with_the_longest_name_has_a_file(tmp_path):
    written = files(tmp_path, limit=1 << 20)
    written.write("p" * 253, [b"1\n"])
    written.write("p" * 253, [b"2\n"])
    written.close()
    assert lines(tmp_path) == [b"1", b"2"]
