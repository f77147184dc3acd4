"""Workload files: what they say, and what is told of those that say it wrong."""

import pytest

from partita_policies import Step, create
from partita_policies.interference import TYPICAL_CACHE
from partita_policies.simulator.tasks import MIB
from partita_research.simulator import simulate
from partita_research.simulator.workloads import InputError, parse_workload, read_workload

WHOLE = """\
applications:
  - name: train
    duration: 120
    steps:
      - {gpu: 5, memory: 500}
      - {repeat: 3, gpu: 60, memory: 3000, core: 35, pcie: 200}
jobs:
  - {application: train, count: 3, at: 10, every: 30}
  - {application: vgg16, name: big, namespace: team-b, priority: 10, memory: 7600, gpus: 2}
gpus:
  - {product: small, memory: 12288, pcie: 32000}
  - {product: fast, count: 2, memory: 40960, speed: 3.5, max_jobs: 8, node: rack}
"""
SAME = "  - {name: a, duration: 1, steps: [{gpu: 1, memory: 1}]}\n"


def test_a_file_says_all_of_a_workload(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    workload = read_workload(file)
    assert workload.name == "mine"
    trains, big = workload.tasks[:3], workload.tasks[3]
    assert [task.job.id for task in trains] == ["train-0", "train-1", "train-2"]
    assert [task.job.submitted for task in trains] == [10, 40, 70]
    assert trains[0].truth.cache == TYPICAL_CACHE
    assert trains[0].truth.steps[1:] == (Step(60, 3000 * MIB, 35, 200e6),) * 3
    assert trains[0].job.memory == 3300 * MIB
    assert (big.job.id, big.job.namespace, big.job.priority) == ("big", "team-b", 10)
    assert (big.job.memory, big.job.gpus) == (7600 * MIB, 2)
    assert [(gpu.id, gpu.node, gpu.product) for gpu in workload.gpus] == [
        ("gpu-0", "node-0", "small"),
        ("gpu-1", "rack", "fast"),
        ("gpu-2", "rack", "fast"),
    ]
    assert workload.gpus[0].pcie_bandwidth == 32 * 10**9
    assert workload.speeds == {"small": 1.0, "fast": 3.5}
    result = simulate(workload.tasks, workload.gpus, create("fifo"), speeds=workload.speeds)
    assert len(result.finished) == 4


def test_without_gpus_a_workload_runs_on_the_study_s():
    workload = parse_workload("jobs: [{application: alexnet}]")
    assert [gpu.product for gpu in workload.gpus] == ["titan-xp"]


def test_an_application_of_the_file_comes_before_the_study_s_of_the_same_name():
    text = WHOLE.replace("name: train\n", "name: alexnet\n").replace(": train,", ": alexnet,")
    assert parse_workload(text).tasks[0].truth.duration == 120


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("count: 3", "count: 0", 8, "jobs[0].count: 0 should be greater than or equal to 1"),
        ("count: 3", "count: 9999999", 8, "count: 9999999 should be less than or equal to 1000000"),
        ("application: train", "application: trian", 8, "trian: unknown; expected one of alexnet"),
        ("duration: 120", "duration: .nan", 3, "duration: .nan should be a finite number"),
        ("duration: 120", "duration: 1.0e+300", 3, "should be less than or equal to 1000000000000"),
        (
            "duration: 120",
            "durations: 120",
            2,
            "applications[0]: durations: unknown; expected name, duration",
        ),
        ("    duration: 120\n", "", 2, "applications[0]: duration: missing"),
        ("name: big", "name: train-1", 9, "job train-1: expected a name that no other job has"),
        ("every: 30", "count: 3", 8, "count: stands here twice"),
        ("speed: 3.5", "speed: 0", 12, "gpus[1].speed: 0 should be greater than 0"),
        ("product: fast", "product: small", 12, "product small: expected one speed"),
        ("jobs:\n", "jobs: {}\n#", 7, "jobs: should be a valid list"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_what_was_expected(
    tmp_path, old, new, line, expected
):
    assert old in WHOLE
    text = WHOLE.replace(old, new, 1)
    if new.endswith("#"):
        text = text[: text.index("#")]
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_workload(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "the file is empty; expected YAML"),
        ("[" * 1000, 1, "expected YAML that is nested less deeply"),
        ("jobs: []", 1, "jobs: List should have at least 1 item"),
        ("- a\n- b", 1, "expected a mapping with jobs, applications, gpus"),
        ("jobs:\n  - application: [\n", 3, "expected YAML"),
        (
            f"applications:\n{SAME}{SAME}jobs: [{{application: a}}]",
            3,
            "a: expected a name that no other application has",
        ),
        (
            "applications:\n  - {name: a, duration: 1, steps: []}\njobs: [{application: a}]",
            2,
            "steps: List should have at least 1 item",
        ),
        ("jobs: [alexnet]", 1, "jobs[0]: expected a mapping with application"),
        ("? [jobs]\n: 1", 1, "expected YAML: found unhashable key"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(text, line, expected):
    with pytest.raises(InputError) as caught:
        parse_workload(text, "file.yaml")
    assert str(caught.value).startswith(f"file.yaml:{line}: ")
    assert expected in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml:1: cannot be read: No such file"):
        read_workload(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00\xff")
    with pytest.raises(InputError, match=r"binary\.yaml:1: expected text in UTF-8"):
        read_workload(binary)
