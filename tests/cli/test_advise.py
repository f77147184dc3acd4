"""`partita advise`, from files and from a cluster."""

import json
from pathlib import Path

import pytest
import yaml

from partita.models.profile import application_hash

DATA = Path(__file__).parent / "data"
PROFILES = DATA / "profiles.yaml"
WORKLOAD = """\
applications:
  - {name: quiet, duration: 100, steps: [{gpu: 5, memory: 500, core: 3}]}
jobs:
  - {application: quiet, count: 2, memory: 900}
  - {application: vgg16}
gpus:
  - {product: mine, memory: 10000, max_jobs: 3}
"""


def test_the_tables_say_what_to_put_together(invoke, text_golden) -> None:
    result = invoke("advise", PROFILES)
    assert not result.stderr
    text_golden("advise.txt", result.stdout)


def test_a_script_reads_the_same_as_json_or_yaml(invoke) -> None:
    printed = invoke("advise", PROFILES, "-o", "json")
    report = json.loads(printed.stdout)
    assert set(report) == {"gpus", "mostColocated", "assumptions"}
    (gpu,) = report["gpus"]
    assert (gpu["product"], gpu["memory"]) == ("NVIDIA A10", 24 * 2**30 * 93 // 100)
    assert [one["coreMeasured"] for one in gpu["applications"]] == [False, True, True]
    verdicts = {tuple(one["applications"]): one["verdict"] for one in gpu["pairs"]}
    assert verdicts["light", "light"] == "Together"
    assert verdicts["blind", "blind"] == "Unknown"
    assert verdicts["large", "large"] == "NoRoom"
    (none,) = [one for one in gpu["pairs"] if one["applications"] == ["large", "large"]]
    assert none["speedup"] is none["slowdowns"] is None
    assert yaml.safe_load(invoke("advise", PROFILES, "-o", "yaml").stdout) == report


def test_other_gpus_can_be_named_and_the_assumption_is_told(invoke) -> None:
    result = invoke("advise", PROFILES, "--gpu", "l4", "--gpu", "tiny:4Gi", "--reserve", "0")
    assert "l4, 24.0 GiB allocatable" in result.stdout
    assert "tiny, 4.0 GiB allocatable" in result.stdout
    said = " ".join(result.stdout.split())
    assert "measured on another product takes the same shares here: blind (on NVIDIA A10)" in said
    assert "Not known: the PCIe bandwidth" in said
    assert "Not known: the SM occupancy of blind" in said


def test_a_workload_brings_its_applications_and_its_gpu(invoke, tmp_path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(WORKLOAD)
    report = json.loads(invoke("advise", path, "-o", "json").stdout)
    (gpu,) = report["gpus"]
    assert (gpu["product"], gpu["memory"]) == ("mine", 10000 << 20)
    assert [one["name"] for one in gpu["applications"]] == ["quiet", "vgg16"]
    assert gpu["applications"][0]["memory"] == 900 << 20
    assert [(one["name"], one["fitting"]) for one in gpu["copies"]] == [("quiet", 3), ("vgg16", 1)]
    more = invoke("advise", path, "--jobs-per-gpu", "9", "-o", "json")
    assert json.loads(more.stdout)["gpus"][0]["copies"][0]["fitting"] == 9


def test_an_application_of_two_namespaces_is_named_with_them(invoke, tmp_path) -> None:
    document = yaml.safe_load(PROFILES.read_text())
    first = document["items"][0]
    other = json.loads(json.dumps(first))
    other["metadata"]["namespace"] = "team-z"
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([first, other]))
    report = json.loads(invoke("advise", path, "-o", "json").stdout)
    names = [one["name"] for one in report["gpus"][0]["applications"]]
    assert names == ["light", "team-z/light"]


def test_what_was_seen_together_is_shown_and_changes_the_advice(invoke, tmp_path) -> None:
    document = yaml.safe_load(PROFILES.read_text())
    before = json.loads(invoke("advise", PROFILES, "-o", "json").stdout)
    light = document["items"][0]
    beside = [{"part": 1, "applications": [application_hash("team-b", "blind")]}]
    (measured,) = light["spec"]["measurements"]
    measured["undisturbed"] = 2
    measured["sharedRuns"] = [{"duration": "20m", "beside": beside}] * 2
    path = tmp_path / "seen.yaml"
    path.write_text(yaml.safe_dump(document))
    (gpu,) = json.loads(invoke("advise", path, "-o", "json").stdout)["gpus"]
    (seen,) = gpu["seenTogether"]
    assert (seen["name"], seen["beside"], seen["samples"]) == ("light", "blind", 2)
    assert 1 <= seen["predicted"] < seen["observed"] <= 2.1

    def slowdown(found) -> float:
        pairs = {tuple(one["applications"]): one["slowdowns"] for one in found["pairs"]}
        return pairs["blind", "light"][1]

    # Two runs count as much as the prediction: half of the way on a logarithmic scale.
    assert slowdown(gpu) > 1.2 * slowdown(before["gpus"][0])
    assert slowdown(gpu) < seen["observed"]
    said = " ".join(invoke("advise", path).stdout.split())
    assert "Seen together Predicted Observed Runs light beside blind" in said
    assert "2 runs count as much as the prediction" in said
    assert "Seen together" not in invoke("advise", PROFILES).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs: [", "f.yaml:1: expected YAML"),
        ("jobs:\n  - {application: nope}", "f.yaml:2: jobs[0].application: nope: unknown"),
        ("kind: List\nitems: []", "there is no ApplicationProfile with a measurement in the files"),
        (
            PROFILES.read_text().replace("gpuUtilization: 99", "gpuUtilization: 199"),
            "f.yaml:26: ApplicationProfile/blind: spec.measurements[0].steps[0].gpuUtilization",
        ),
    ],
)
def test_wrong_files_are_told_with_their_line(invoke, tmp_path, monkeypatch, text, said) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(text)
    result = invoke("advise", "f.yaml", code=1)
    assert said in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nowhere.yaml"], 1, "cannot be read: No such file or directory; name a file, or one of"),
        (["random", "--gpu", "mine"], 2, "or any name with its memory, as in mine:24Gi"),
        (["random", "--gpu", "mine:-1Gi"], 2, "write PRODUCT, or with its memory mine:24Gi"),
        (["random", "--namespace", "team"], 2, "leave out SOURCES"),
    ],
)
def test_wrong_usage_says_what_to_write(invoke, args, code, said) -> None:
    result = invoke("advise", *args, code=code)
    assert said in result.stderr


def test_profiles_that_do_not_say_where_they_are_from_need_a_gpu(invoke, tmp_path) -> None:
    document = yaml.safe_load(PROFILES.read_text())["items"][0]
    document["spec"]["measurements"][0]["environment"] = {}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(document))
    assert "add --gpu PRODUCT" in invoke("advise", path, code=2).stderr
    invoke("advise", path, "--gpu", "a10")


async def test_the_profiles_of_a_cluster_are_taken(partita, api) -> None:
    (await api.post("/api/v1/namespaces", {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "advised"},
    })).ok()  # fmt: skip
    body = yaml.safe_load(PROFILES.read_text())["items"][0]
    body["metadata"] = {"name": "light", "namespace": "advised"}
    path = "/apis/partita.dev/v1alpha1/namespaces/advised/applicationprofiles"
    (await api.post(path, body)).ok()
    try:
        result = await partita("advise", "--namespace", "advised")
        assert "NVIDIA A10, 22.3 GiB allocatable" in result.stdout
        none = await partita("advise", "--namespace", "nobody", code=1)
        assert "no ApplicationProfile with a measurement in namespace nobody" in none.stderr
    finally:
        (await api.delete(f"{path}/light")).ok()
