"""`partita simulate --cost`: what a workload costs under each policy."""

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


def test_the_cost_under_each_policy_follows_the_comparison(invoke, text_golden, files) -> None:
    args = ("simulate", "jobs.yaml", "-p", "sjf", "-p", "fifo", "--prices", "prices.yaml")
    result = invoke(*args)
    assert result.exit_code == 0
    assert not result.stderr
    comparison, cost = result.stdout.split("\nPolicy  Makespan  Shares")
    assert "Mean" in comparison
    text_golden("cost.txt", "Policy  Makespan  Shares" + cost)


def test_a_script_reads_the_cost_as_numbers(invoke, files) -> None:
    args = ("simulate", "jobs.yaml", "-p", "sjf", "-p", "fifo", "--prices", "prices.yaml")
    cost = json.loads(invoke(*args, "-o", "json").stdout)["cost"]
    assert cost["prices"] == {"small": 0.5, "large": 1.2}
    assert cost["policies"] == [
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


def test_without_a_list_the_prices_of_the_study_are_used(invoke, files) -> None:
    args = ("simulate", "jobs.yaml", "-p", "sjf", "-o", "json")
    assert "cost" not in json.loads(invoke(*args).stdout)
    cost = json.loads(invoke(*args, "--cost").stdout)["cost"]
    assert cost["prices"] == {"g3.xlarge": 0.75, "g4dn.xlarge": 0.526, "g4dn.4xlarge": 1.204}


def test_without_sjf_no_saving_is_reported(invoke, files) -> None:
    args = ("simulate", "jobs.yaml", "-p", "fifo", "--prices", "prices.yaml", "-o", "json")
    cost = json.loads(invoke(*args).stdout)["cost"]
    assert cost["reference"] is None
    assert cost["policies"][0]["sharing"]["quarters"]["saved"] is None


def test_the_cost_of_fewer_jobs_is_marked(invoke, files) -> None:
    (files / "jobs.yaml").write_text(WORKLOAD.replace("memory: 900", "memory: 90000"))
    result = invoke("simulate", "jobs.yaml", "-p", "sjf", "--cost")
    assert "* Not all jobs finished: the costs are those of fewer jobs." in result.stdout


def test_wrong_prices_are_reported_with_their_line(invoke, files) -> None:
    (files / "prices.yaml").write_text(PRICES.replace("dollars: 1.2", "dollars: cheap"))
    result = invoke("simulate", "jobs.yaml", "--prices", "prices.yaml")
    assert result.exit_code == 1
    expected = (
        "prices.yaml:3: instances[1].dollars: cheap: expected a number above 0, at most 1e+12\n"
    )
    assert result.stderr == f"Error: {expected}"
