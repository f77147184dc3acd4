"""`partita simulate`, from the command line to the table, the JSON and the picture."""

import importlib.util
import json
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint
from math import sqrt
from statistics import mean, stdev

import pytest

from partita_policies import Parameters, Placement, registry

WORKLOAD = """
applications:
  - {name: app, duration: 100, steps: [{gpu: 50, memory: 1000}]}
jobs:
  - {application: app, count: 3}
  - {application: app, name: huge, memory: 99000}
  - {application: app, name: wide, gpus: 2}
gpus:
  - {product: t4, memory: 16384, speed: 2}
"""
TASKS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


@pytest.fixture
def policy(monkeypatch) -> Callable[[str, type], None]:
    """Install a policy of this module."""

    def install(name: str, kind: type) -> None:
        target = f"{__name__}:{kind.__name__}"
        found = [*registry._entry_points(), EntryPoint(name, target, registry.ENTRY_POINT_GROUP)]
        monkeypatch.setattr(registry, "_entry_points", lambda: found)

    return install


EXCLUSIVE = ("--parameter", "sjf:exclusive=true")


class Raises:
    parameters = Parameters

    def __init__(self, _: Parameters) -> None:
        pass

    def decide(self, _):
        raise ValueError("a NaN came out of the network")


class Waits(Raises):
    def decide(self, _):
        return []


class Overfills(Raises):
    def decide(self, snapshot):
        return [Placement(job.id, (snapshot.gpus[0].id,) * 2) for job in snapshot.jobs]


class FollowsTheObjective(Raises):
    def decide(self, snapshot):
        raise ValueError(f"asked for {snapshot.objective.value}")


class Fussy(Raises):
    def __init__(self, _):
        raise FileNotFoundError("/models/missing.onnx")


def results_of(output: str) -> dict[str, dict]:
    return {entry["policy"]: entry for entry in json.loads(output)["policies"]}


def test_the_study_s_workload_is_compared_and_the_best_comes_first(invoke):
    result = invoke("simulate", "random", "-p", "sjf", "-p", "tetris", *EXCLUSIVE)
    lines = result.stdout.splitlines()
    assert lines[0] == "random: 30 jobs on 1 x titan-xp, MPS"
    named = [line.split()[0] for line in lines if re.match(r"(sjf|tetris)\b", line)]
    assert named == ["tetris", "sjf"]
    (row,) = (line for line in lines if line.startswith("sjf"))
    assert re.match(r"sjf +2,295 s +646 s +1\.00 +1\.00 +30 of 30 ", row)


def test_the_same_seed_gives_the_same_result_and_another_one_another(invoke):
    def makespan(seed: int) -> float:
        args = ("random", "-p", "tetris", "--noise", "0.2", "--seed", seed, "-o", "json")
        found = results_of(invoke("simulate", *args).stdout)["tetris"]
        return found["makespan"]

    assert makespan(1) == makespan(1) != makespan(2)


def test_the_json_has_everything_and_can_be_loaded(invoke):
    result = invoke("simulate", "random", "-p", "sjf", *EXCLUSIVE, "--jobs", 4, "-o", "json")
    document = json.loads(result.stdout)
    (entry,) = document["policies"]
    (run,) = entry["runs"]
    assert max(one["end"] for one in run["result"]["attempts"]) == entry["makespan"] > 0
    assert len(run["result"]["jobs"]) == document["jobs"] == entry["notSlowed"] == 4
    assert document["gpus"] == [{"id": "gpu-0", "product": "titan-xp", "memory": 12 << 30}]
    assert entry["gpuHours"] == pytest.approx(entry["makespan"] / 3600)
    assert entry["p99Decision"] >= entry["meanDecision"] / 4 > 0


def test_jobs_that_can_never_start_are_named_with_the_reason(invoke, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(WORKLOAD)
    result = invoke("simulate", path, "-p", "fifo", code=1)
    assert result.stderr == "Error: jobs never started: 2 under fifo\n"
    said = result.stdout
    assert "mine: 5 jobs on 1 x t4, MPS" in said
    assert "huge can never start: it asks for 96.7 GiB, and the largest GPU has 16.0 GiB" in said
    assert "wide can never start: it asks for 2 GPUs of one node, and none has more than 1" in said


BURST = """
applications:
  - {name: early, duration: 100, steps: [{gpu: 10, memory: 9000}]}
  - {name: late, duration: 100, steps: [{gpu: 10, memory: 1000}, {gpu: 10, memory: 8000}]}
jobs:
  - {application: early, memory: 4000, memory_limit: 10000}
  - {application: late, memory: 8000}
gpus:
  - {product: t4, memory: 16000}
"""


def test_attempts_whose_borrowed_memory_was_reclaimed_are_counted(invoke, tmp_path):
    file = tmp_path / "burst.yaml"
    file.write_text(BURST)
    done = invoke("simulate", str(file), "-p", "fifo")
    assert "fifo: memory above a job's guarantee was reclaimed 3 times" in done.stdout
    data = json.loads(invoke("simulate", str(file), "-p", "fifo", "-o", "json").stdout)
    (figures,) = data["policies"]
    assert (figures["reclaimed"], figures["outOfMemory"], figures["finished"]) == (3, 0, 2)


def test_gpus_can_be_others_than_the_workload_s(invoke, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(WORKLOAD)

    def made(*args) -> tuple[str, float]:
        asked = invoke("simulate", path, "-p", "sjf", *EXCLUSIVE, "-o", "json", *args, code=1)
        document = json.loads(asked.stdout)
        products = ",".join(gpu["product"] for gpu in document["gpus"])
        return products, round(document["policies"][0]["makespan"])

    assert made() == ("t4", 150)
    assert made("--gpu", "a10:1", "--gpu", "mine:2:17Gi") == ("a10,mine,mine", 200)
    assert made("--gpus", path) == ("t4", 150)


def test_of_several_runs_the_means_are_shown_with_their_interval(invoke):
    args = ("random", "-p", "tetris", "-p", "sjf", *EXCLUSIVE, "--noise", 0.2, "--seed", 5)
    result = invoke("simulate", *args, "--runs", 3)
    printed = invoke("simulate", *args, "--runs", 3, "-o", "json").stdout
    (tetris, sjf) = json.loads(printed)["policies"]
    assert [run["seed"] for run in sjf["runs"]] == [5, 6, 7]
    spans = [run["makespan"] for run in sjf["runs"]]
    assert sjf["makespan"] == pytest.approx(mean(spans))
    half = 4.303 * stdev(spans) / sqrt(3)
    assert sjf["makespanInterval"] == pytest.approx(half)
    assert sjf["maxSlowdown"] == max(run["maxSlowdown"] for run in sjf["runs"])
    assert re.search(rf"^sjf +{mean(spans):,.0f} s ±{half:,.0f} ", result.stdout, re.MULTILINE)
    assert "Means of 3 runs" in result.stdout
    (alone,) = results_of(invoke("simulate", *args, "-o", "json").stdout)["tetris"]["runs"]
    first = tetris["runs"][0]
    for run in (alone, first):
        del run["result"]["seconds"]
    assert alone["result"] == first["result"]


def test_a_trace_runs_on_the_nodes_of_its_list(invoke, tmp_path):
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(
        TASKS
        + "half,1000,1024,1,500,,100,200\nno-gpu,1000,1024,0,0,,100,200\n"
        + "picky,1000,1024,1,500,V100,100,300\nlate,1000,1024,1,1000,,150,300\n"
    )
    nodes.write_text(NODES + "node-0,64000,262144,1,P100\n")
    result = invoke("simulate", pods, "--gpus", nodes, "-p", "fifo", "-o", "json", code=1)
    assert "1 of 4 tasks have no GPU, or no times" in result.stderr
    (entry,) = results_of(result.stdout).values()
    jobs = {job["job"]: job for job in entry["runs"][0]["result"]["jobs"]}
    submitted = {name: job["submitted"] for name, job in jobs.items()}
    assert submitted == {"half": 0, "picky": 0, "late": 50}
    assert jobs["picky"]["outcome"] == "NeverFits"
    assert jobs["late"]["start"] == 100
    table = invoke("simulate", pods, "--gpus", nodes, "-p", "fifo", code=1).stdout
    assert "* picky can never start: there is no V100" in table


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bad.yaml", "jobs: [", "bad.yaml:1: expected YAML"),
        ("pods.csv", TASKS, "none of its 0 tasks has a GPU and both a creation_time"),
        ("pods.csv", TASKS + "a,1,1,1,5,,0,9\na,1,1,1,5,,0,9\n", "job a: expected ids that differ"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_line_and_what_was_expected(
    invoke, tmp_path, name, text, said
):
    path = tmp_path / name
    path.write_text(text)
    result = invoke("simulate", path, "-p", "fifo", "--gpu", "t4:1", code=1)
    assert said in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nope"], 1, "there is no workload 'nope': name a file, or one of gpu-heavy,"),
        (["nope.yaml"], 1, "nope.yaml:1: cannot be read: No such file"),
        (["nope.csv", "--gpu", "t4:1"], 1, "nope.csv: expected a file that can be read"),
        (["random", "--parameter", "x=1"], 2, "goes with --policy"),
        (["random", "-p", "sjf", "--parameter", "x=1"], 2, "it takes exclusive: bool = False"),
        (["random", "-p", "sjf", "--parameter", "fifo:x=1"], 2, "fifo is not among the policies"),
        (["random", "-p", "sjf", "--parameter", "x"], 2, "write KEY=VALUE"),
        (["random", "--gpu", "t4"], 2, "write PRODUCT:COUNT"),
        (["random", "--gpu", "mine:2"], 2, "or any name with its memory, as in mine:2:24Gi"),
        (["random", "--runs", "3"], 2, "--runs needs --noise or --services above 0"),
        (["random", "--picture", "a.bmp"], 2, "end its name in .png, .svg, .pdf"),
        (["random", "--picture", "/nowhere/a.png"], 2, "create the folder /nowhere first"),
        (["random", "-p", "magic"], 2, "there is no policy 'magic'"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(invoke, args, code, said):
    assert said in invoke("simulate", *args, code=code).stderr


def test_both_kinds_of_gpus_are_too_many(invoke, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(WORKLOAD)
    result = invoke("simulate", path, "--gpu", "t4:1", "--gpus", path, code=2)
    assert "use either --gpu or --gpus, not both" in result.stderr
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(NODES + "node-0,64000,262144,0,\n")
    assert "has no node with a GPU" in invoke("simulate", path, "--gpus", nodes, code=1).stderr
    pods = tmp_path / "pods.csv"
    pods.write_text(TASKS + "a,1,1,1,5,,0,9\n")
    assert "says nothing of GPUs: name its list of nodes" in invoke("simulate", pods, code=1).stderr


def test_a_policy_that_fails_is_told_and_the_others_are_compared(invoke, policy):
    policy("raises", Raises)
    result = invoke("simulate", "random", "-p", "raises", "-p", "sjf", *EXCLUSIVE, code=1)
    assert "raises failed: at 0 s it raised ValueError: a NaN came out" in result.stderr
    assert "2,295 s" in result.stdout


@pytest.mark.parametrize(
    ("option", "objective"), [((), "Makespan"), (("--objective", "Packing"), "Packing")]
)
def test_the_policies_see_the_objective(invoke, policy, option, objective):
    policy("follows", FollowsTheObjective)
    result = invoke("simulate", "random", "-p", "follows", *option, code=1)
    assert f"asked for {objective}" in result.stderr


def test_a_policy_that_waits_for_ever_or_breaks_limits_is_told(invoke, policy):
    policy("waits", Waits)
    policy("overfills", Overfills)
    result = invoke("simulate", "random", "-p", "waits", "-p", "overfills", "-p", "sjf", code=1)
    assert "jobs never started: 30 under overfills, 30 under waits" in result.stderr
    assert "* waits: was left to wait for ever: " in result.stdout
    assert " and 25 more" in result.stdout.replace("\n", " ")
    assert "overfills: 30 placements broke a limit and were not made" in result.stdout
    rows = [line.split()[0] for line in result.stdout.splitlines()[4:7]]
    assert rows == ["sjf", "overfills", "waits"]


def test_a_policy_that_cannot_be_built_is_left_out_unless_it_is_named(invoke, policy):
    policy("fussy", Fussy)
    result = invoke("simulate", "random", "--jobs", 2)
    assert "/models/missing.onnx; it is left out" in result.stderr
    said = invoke("simulate", "random", "-p", "fussy", code=1).stderr
    assert "Error: policy 'fussy' cannot start: FileNotFoundError: /models/missing.onnx" in said


def test_parameters_go_to_the_policies_that_they_are_for(invoke):
    def makespan(*args) -> float:
        asked = invoke("simulate", "random", "-p", "sjf", "-o", "json", *args)
        return results_of(asked.stdout)["sjf"]["makespan"]

    shared = makespan("--parameter", "sjf:exclusive=true")
    assert shared == makespan("--parameter", "exclusive=true") != makespan()


def test_pictures_are_drawn_in_one_file_or_in_one_for_each_policy(invoke, tmp_path):
    together, apart = tmp_path / "all.svg", tmp_path / "of-{policy}.svg"
    asked = ("simulate", "random", "--jobs", 3, "-p", "fifo", "-p", "sjf", "--picture")
    assert f"Drawn: {together}" in invoke(*asked, together).stderr
    result = invoke(*asked, apart)
    assert result.stderr.count("Drawn: ") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"all.svg", "of-fifo.svg", "of-sjf.svg"}
    assert all("<svg" in path.read_text() for path in tmp_path.iterdir())


def test_without_matplotlib_the_pip_line_is_given_before_anything_is_run(invoke, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "partita_research.cli.simulate.find_spec", lambda n: None if n == "matplotlib" else find(n)
    )
    result = invoke("simulate", "random", "--picture", "a.png", code=1)
    assert result.stderr == (
        "Error: matplotlib is not installed: run `pip install -e '.[plot]'` in a checkout of Partita\n"
    )
    assert not result.stdout
