"""`partita cost`: whole outputs, of the study's table and of bills."""

import json

import pytest

WORKLOAD = """\
applications:
  - {name: quiet, duration: 1800, cache: 0, steps: [{gpu: 0, memory: 500}]}
jobs:
  - {application: quiet, count: 2, memory: 900}
gpus:
  - {product: mine, memory: 10000, max_jobs: 3}
"""
PRICES = """\
instances:
  - {name: small, gpus: 1, vcpus: 4, memory: 16, dollars: 0.5, source: our contract}
  - {name: large, gpus: 1, vcpus: 16, memory: 64, gpu_memory: 0.5, dollars: 1.2, source: our contract}
sharing:
  - {name: quarters, alone: small, shared: large, sharers: 4}
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "jobs.yaml").write_text(WORKLOAD)
    (tmp_path / "prices.yaml").write_text(PRICES)
    return tmp_path


def test_a_workload_is_priced_under_each_policy(invoke, text_golden, files) -> None:
    args = ("cost", "jobs.yaml", "-p", "sjf", "-p", "fifo", "--prices", "prices.yaml")
    result = invoke(*args)
    assert result.exit_code == 0
    assert not result.stderr
    text_golden("cost.txt", result.stdout)


def test_the_studys_table_comes_first(invoke, text_golden, files) -> None:
    result = invoke("cost", "jobs.yaml", "--study", "-p", "sjf")
    assert result.exit_code == 0
    text_golden("cost-study.txt", result.stdout)


def test_by_itself_the_studys_table_goes_with_its_workload(invoke) -> None:
    result = invoke("cost", "--study", "-p", "sjf", "--json", "-")
    report = json.loads(result.stdout)
    assert (report["workload"], report["jobs"]) == ("random", 30)
    assert [one["published"] for one in report["study"]["savings"]] == [29.86, 49.98]
    assert [round(one["recomputed"], 2) for one in report["study"]["savings"]] == [29.86, 49.99]


def test_a_script_reads_the_same_as_json(invoke, files) -> None:
    args = ["cost", "jobs.yaml", "-p", "sjf", "-p", "fifo", "--prices", "prices.yaml"]
    invoke(*args, "--json", "costs.json")
    report = json.loads((files / "costs.json").read_text())
    assert "study" not in report
    assert report["prices"] == {"small": 0.5, "large": 1.2}
    assert report["policies"] == [
        {
            "policy": "fifo",
            "makespan": 1800.0,
            "allFinished": True,
            "shares": True,
            "instances": {"small": 0.25, "large": 0.6},
            "sharing": {"quarters": {"dollars": pytest.approx(0.15), "saved": pytest.approx(70)}},
        },
        {
            "policy": "sjf",
            "makespan": 3600.0,
            "allFinished": True,
            "shares": False,
            "instances": {"small": 0.5, "large": 1.2},
            "sharing": {"quarters": {"dollars": 0.5, "saved": 0.0}},
        },
    ]


def test_without_the_reference_no_saving_is_told(invoke, files) -> None:
    result = invoke("cost", "jobs.yaml", "-p", "fifo", "--prices", "prices.yaml", "--json", "-")
    report = json.loads(result.stdout)
    assert report["reference"] is None
    assert report["policies"][0]["sharing"]["quarters"]["saved"] is None


def test_jobs_that_cannot_run_are_told(invoke, files) -> None:
    (files / "jobs.yaml").write_text(WORKLOAD.replace("memory: 900", "memory: 90000"))
    result = invoke("cost", "jobs.yaml", "-p", "sjf")
    assert "Not all jobs finished" in result.stdout


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ([], 2, "name a WORKLOAD, or write --study"),
        (["trace.csv"], 2, "name a workload file (YAML)"),
        (["nope"], 1, "there is no workload 'nope'"),
        (["jobs.yaml", "-p", "magic"], 2, "there is no policy 'magic'"),
        (["jobs.yaml", "--prices", "nowhere.yaml"], 2, "does not exist"),
    ],
)
def test_wrong_usage_says_what_to_write(invoke, files, args, code, said) -> None:
    result = invoke("cost", *args)
    assert result.exit_code == code
    assert said in result.stderr
    assert not result.stdout


def test_wrong_prices_are_told_with_their_line(invoke, files) -> None:
    (files / "prices.yaml").write_text(PRICES.replace("dollars: 1.2", "dollars: cheap"))
    result = invoke("cost", "jobs.yaml", "--prices", "prices.yaml")
    assert result.exit_code == 1
    expected = (
        "prices.yaml:3: instances[1].dollars: cheap: expected a number above 0, at most 1e+12\n"
    )
    assert result.stderr == f"Error: {expected}"


def test_a_policy_that_fails_is_named(invoke, files, monkeypatch) -> None:
    from partita_policies.fifo import FIFO

    def broken(self, snapshot):
        raise RuntimeError("no idea")

    monkeypatch.setattr(FIFO, "decide", broken)
    result = invoke("cost", "jobs.yaml", "-p", "fifo")
    assert result.exit_code == 1
    assert "policy fifo failed (RuntimeError: no idea): leave it out with --policy" in result.stderr
