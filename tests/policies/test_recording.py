import pytest

from partita_policies import Profile, SnapshotError, dump_snapshot, load_snapshot
from partita_policies.check_cases import crowd, one_small_job


@pytest.mark.parametrize("field", ["partition", "time", "sharing", "complete", "jobs", "gpus"])
def test_a_missing_field_is_named(field):
    document = dump_snapshot(one_small_job())
    del document[field]
    with pytest.raises(SnapshotError, match=f"missing: {field}"):
        load_snapshot(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("jobs", 0, "memory"), -1, r"jobs\.0\.memory: .*greater than or equal to 0"),
        (("jobs", 0, "memory"), "4Gi", r"jobs\.0\.memory: .*valid integer"),
        (("jobs", 0, "colour"), "red", r"jobs\.0\.colour: Unexpected"),
        (("gpus", 0, "max_jobs"), True, r"gpus\.0\.max_jobs: .*valid integer"),
        (("time",), float("nan"), "time: .*finite"),
        (("objective",), "Speed", "objective: .*'Makespan', 'Completion'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(path, value, message):
    document = dump_snapshot(one_small_job())
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(SnapshotError, match=message):
        load_snapshot(document)


def test_many_wrong_values_are_summed_up():
    document = dump_snapshot(crowd(20, 1))
    for job in document["jobs"]:
        del job["memory"]
    with pytest.raises(SnapshotError, match=r"jobs\.4\.memory: Field required; and 15 more$"):
        load_snapshot(document)


def test_the_peak_of_a_profile_is_that_of_its_largest_step():
    assert max(job.profile.peak_memory for job in crowd(3, 0).jobs if job.profile) == 5 * 2**30
    assert Profile("new", 1.0, ()).peak_memory == 0
