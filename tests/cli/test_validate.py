"""`partita validate`: every finding with its line, whatever the files hold."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.validation.files import check_files
from partita.validation.yaml_documents import Document, Problem, read_documents

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = """\
apiVersion: partita.dev/v1alpha1
kind: SharedGPUJob
metadata: {name: a}
spec:
  partition: shared
  template: {spec: {containers: [{name: main, image: program}]}}
"""
PARTITION = """\
---
apiVersion: partita.dev/v1alpha1
kind: GPUPartition
metadata: {name: shared}
spec: %s
"""


def messages(text: str | bytes) -> list[str]:
    content = text.encode() if isinstance(text, str) else text
    return [str(finding) for finding in check_files([("f", content)]).findings]


def test_each_finding_has_its_file_line_object_and_path(invoke, text_golden, monkeypatch) -> None:
    monkeypatch.chdir(DATA)
    result = invoke("validate", "partition.yaml", "jobs.yaml", code=1)
    text_golden("validate.txt", result.stdout + result.stderr)


def test_a_script_reads_the_same_as_json(invoke, monkeypatch) -> None:
    monkeypatch.chdir(DATA)
    result = invoke("validate", "partition.yaml", "jobs.yaml", "--output", "json", code=1)
    assert not result.stderr
    report = json.loads(result.stdout)
    assert [report[key] for key in ("files", "checked", "passedOver")] == [2, 16, 2]
    assert list(report["findings"][2].values()) == [
        "error", "partition.yaml", 20, "GPUPartition", "", "shared", "spec.policy.fallback",
        "there is no policy 'fofi'; installed are: fifo, sjf, tetris",
    ]  # fmt: skip


def test_images_of_the_examples_name_their_registry() -> None:
    text = "".join(file.read_text() for file in EXAMPLES.rglob("*.yaml"))
    assert all("." in image.split("/")[0] for image in re.findall(r" image: (\S+)", text))


def test_the_examples_are_right(invoke) -> None:
    result = invoke("validate", EXAMPLES)
    assert not result.stdout
    assert result.stderr == (
        "31 files, 42 resources checked; 14 others not checked; no problem found.\n"
    )


@pytest.mark.parametrize("folder", ["services", "workloads"])
def test_the_examples_name_each_claim_template_beside_them_and_no_other(folder: str) -> None:
    text = "---\n".join(file.read_text() for file in (EXAMPLES / folder).glob("*.yaml"))
    objects = yaml.safe_load_all(text)
    made = {o["metadata"]["name"] for o in objects if o["kind"] == "ResourceClaimTemplate"}
    assert set(re.findall(r"resourceClaimTemplateName: ([\w-]+)", text)) == made


def test_warnings_alone_are_no_failure(invoke, tmp_path) -> None:
    other = PARTITION.replace("shared", "other") % "{gpus: 1}"
    (tmp_path / "partition.yaml").write_text(other)
    (tmp_path / "job.yml").write_text(JOB)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "job.yaml").write_text("[")
    (tmp_path / "notes.txt").write_text("[")
    result = invoke("validate", tmp_path)
    assert result.stdout == (
        f"{tmp_path / 'job.yml'}:5: SharedGPUJob/a: spec.partition: warning: no GPUPartition "
        "shared is among these files (there is: other)\n"
    )
    assert result.stderr == "2 files, 2 resources checked; 0 errors, 1 warning.\n"


def test_jobs_by_themselves_need_no_partition() -> None:
    assert messages(JOB) == []


def test_stdin_is_a_file_too(invoke) -> None:
    result = invoke("validate", "-", stdin=JOB.replace("partition: shared", "gpus: 0"), code=1)
    assert result.stdout.splitlines() == [
        "<stdin>:4: SharedGPUJob/a: spec.partition: Required value",
        (
            "<stdin>:5: SharedGPUJob/a: spec.gpus: Invalid value: 0: "
            "spec.gpus in body should be greater than or equal to 1"
        ),
    ]


def test_a_file_that_is_not_there_is_wrong_usage(invoke) -> None:
    invoke("validate", "nowhere.yaml", code=2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: b\nname: caf\xe9\n", "f:2: byte 0xe9 is not UTF-8: save the file as UTF-8"),
        ("a:\n  - {b: c\nd: e\n",
         "f:3: is no YAML: while parsing a flow mapping, expected ',' or '}', but got ':'"),
        ("a: b\nc: \x07\n", "f:2: is no YAML: character U+0007 is not allowed"),
        ("a: 1\nb: 2\na: 3\n", "f:3: a stands twice in this mapping: remove one of them"),
        ("a: &x [*x]\n", "f:1: contains itself by an alias: write it out"),
        ("\na: !secret b\n", "f:2: tag !secret means nothing to Kubernetes: remove it"),
        ("a: .inf\n", "f:1: is no number that JSON has: put it in quotes"),
        (f"a: {'9' * 5000}\n", "f:1: is no number that JSON has: put it in quotes"),
        ("a: !!int x\n", "f:1: 'x' is no int: put it in quotes"),
        ("? [a]\n: b\n", "f:1: a key must be text: write a word, or put it in quotes"),
        ('a: "\\ud800"\n', "f:1: half of a surrogate pair is no character: write the whole one"),
        ("<<: 3\n", "f:1: << takes a mapping, or a list of mappings"),
        ("[" * 1000, "f:1: is nested too deeply: 100 levels are the most"),
    ],
)  # fmt: skip
def test_what_is_no_yaml_is_told_with_its_line(content, said) -> None:
    assert messages(content) == [said]


@pytest.mark.parametrize(("first", "more"), [("[x, x, x]", "[{}]"), ("{x: x}", "{{<<: [{}]}}")])
def test_aliases_that_explode_are_refused(first: str, more: str) -> None:
    bomb = f"a: &a {first}\n" + "".join(
        f"{b}: &{b} {more.format(', '.join([f'*{a}'] * 10))}\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    (said,) = messages(bomb)
    assert said.endswith("its aliases make it too large: write them out, or fewer")


def values(text: str) -> Any:
    (document,) = read_documents(text.encode())
    assert isinstance(document, Document)
    return document.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01", "2026-01-01"), ("1:30", "1:30"), ("1e3", 1000.0), ("yes", True),
        ("~", None), ("0x10", 16), ("18446744073709551616", 18446744073709551616.0),
        ("{1: a, true: b, 1.5: c}", {"1": "a", "true": "b", "1.5": "c"}),
        ("{<<: {a: 1, b: 2}, b: 3}", {"a": 1, "b": 3}),
        ("{<<: [{a: 1}, {a: 2, b: 2}]}", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_yaml_is_read_as_kubectl_reads_it(text, value) -> None:
    assert values(text) == value


def test_a_folder_without_yaml_is_an_error_that_says_what_to_pass(invoke, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("a: b")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.yaml").write_text(JOB)
    result = invoke("validate", str(tmp_path), code=1)
    assert result.stderr == (
        f"Error: {tmp_path} holds no YAML files: pass files, a folder with *.yaml or *.yml files, "
        "or -\n"
    )


def test_rules_are_checked_although_something_else_is_malformed() -> None:
    job = JOB.replace(
        "partition: shared", "partition: shared\n  gpuMemory: 4Gi\n  gpus: many\n  slice: small"
    )
    (gpus, both) = messages(job)
    assert "spec.gpus in body must be of type integer" in gpus
    assert "write either slice, or gpuMemory, gpuMemoryLimit and threadPercent" in both


@pytest.mark.parametrize(
    ("sharing", "told"),
    [
        ("burst: Never",
         ("warning: GPUPartition shared has sharing.burst Never, so this has no effect: remove it, "
          "or set sharing.burst to Spare there")),
        ("burst: Spare", None),
    ],
)  # fmt: skip
def test_a_ceiling_is_compared_with_what_the_partition_allows(
    sharing: str, told: str | None
) -> None:
    limits = "{partition: shared, gpuMemory: 4Gi, gpuMemoryLimit: 8Gi,"
    job = JOB.replace("spec:\n  partition: shared\n ", f"spec:\n  {limits}") + "  }\n"
    found = messages(job + PARTITION % f"{{gpus: 1, sharing: {{{sharing}}}}}")
    where = "f:5: SharedGPUJob/a: spec.gpuMemoryLimit: "
    assert found == ([] if told is None else [where + told])


def test_the_template_is_checked_although_a_field_is_unknown() -> None:
    job = JOB.replace("partition: shared", "partition: shared\n  gpuMemry: 4Gi")
    job = job.replace("image: program}", "image: program, env: [{name: A, value: 1}]}")
    assert [line.split(": ", 2)[2] for line in messages(job)] == [
        "spec.gpuMemry: unknown field: did you mean gpuMemory?",
        "spec.template.spec.containers[0].env[0].value: must be a text, not 1: write it in quotes",
    ]


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_gpu_requests_of_a_template_are_warned_of(name: str, invoke, tmp_path) -> None:
    requests = f"image: program, resources: {{limits: {{{name}: 1}}}}}}"
    (tmp_path / "a.yaml").write_text(JOB.replace("image: program}", requests))
    result = invoke("validate", str(tmp_path))
    assert (
        f"spec.template.spec.containers[0].resources.limits.{name}: warning: the operator removes "
        "this: a job gets its GPU from the partition. Write how much GPU memory the job needs in "
        f"spec.gpuMemory instead of {name}"
    ) in result.stdout


QUANTITIES = st.one_of(
    st.from_regex(r"[+-]?[0-9.]{0,9}([eE][+-]?[0-9]{1,22}|[numkMGTPE]i?)?", fullmatch=True),
    st.sampled_from(["1e99999", "\u0661", "-0", "1Ki2", "9" * 5000, "0e99999999999999999999999"]),
    st.floats(),
    st.integers(),
    st.booleans(),
)


@settings(deadline=None)
@given(QUANTITIES)
def test_no_quantity_makes_it_fall_over(value: Any) -> None:
    body = yaml.safe_load(JOB)
    body["spec"]["gpuMemory"] = value
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"cpu": value, "memory": value}}
    partition = yaml.safe_load(PARTITION % "{gpus: 1}")
    partition["spec"]["quotas"] = [{"namespace": "a", "memory": value}]
    partition["spec"]["slices"] = [{"name": "a", "memory": value, "threadPercent": 10}]
    content = yaml.safe_dump_all([partition, body], allow_unicode=True).encode()
    for finding in check_files([("f", content)]).findings:
        assert finding.message


def test_of_claims_in_a_job_those_of_other_drivers_are_valid() -> None:
    body = yaml.safe_load(JOB)
    spec = body["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "rdma"}]
    spec["containers"][0]["resources"] = {"claims": [{"name": "nic"}]}
    assert messages(yaml.safe_dump(body)) == []
    exactly = {"deviceClassName": "shared.gpu.partita.dev"}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    template = {"metadata": {"name": "rdma"}, "spec": {"spec": {"devices": devices}}}
    template |= {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    (said,) = messages(yaml.safe_dump_all([body, template]))
    assert "resourceClaims[0]: claim rdma is one of class shared.gpu.partita.dev" in said


def test_what_keeps_a_job_from_its_rules_is_warned_of() -> None:
    job = JOB.replace("image: program}", "image: program, restartPolicy: OnFailure}")
    (scheduler, policy) = messages(job.replace("{spec: {", "{spec: {schedulerName: volcano, "))
    assert "containers[0].restartPolicy: warning: the operator removes this" in policy
    assert "schedulerName: warning: scheduler volcano must reserve" in scheduler


def test_objects_of_others_are_passed_over() -> None:
    report = check_files([("f", b"a: b\n---\n[1, 2]\n---\n---\nkind: Kustomization\n")])
    assert (report.checked, report.passed_over, report.findings) == (0, 3, [])


def test_overlays_with_one_partition_that_takes_the_job_are_right() -> None:
    partition = PARTITION % "{gpus: 1, sharing: {mode: %s}}"
    job = JOB.replace("partition: shared", "partition: shared\n  gpus: 2")
    assert len(messages(job + partition % "MPS")) == 1
    assert messages(job + partition % "MPS" + partition % "Exclusive") == []


def test_too_many_containers_for_a_gpu_are_told() -> None:
    partition = PARTITION % "{gpus: 1, sharing: {maxJobsPerGPU: 1}}"
    job = JOB.replace("image: program}]", "image: program}, {name: more, image: program}]")
    (processes, places) = messages(job + partition)
    assert "containers: warning: 2 containers may use the GPU at the same time" in processes
    assert places.startswith(
        "f:6: SharedGPUJob/a: spec.template.spec.containers: 2 containers take"
    )
    assert len(messages(job.replace("partition: shared", "partition: shared\n  processes: 2"))) == 0


# Nonsense. A hook that falls over is worse than none.


@given(st.binary(max_size=300))
def test_no_bytes_make_it_fall_over(content: bytes) -> None:
    for finding in check_files([("f", content)]).findings:
        assert 1 <= finding.line <= content.count(b"\n") + 2


@given(st.text(alphabet="ab: -[]{}&*!|>'\"\n?,#%@<~1.e", max_size=200))
def test_no_text_makes_it_fall_over(text: str) -> None:
    for document in read_documents(text.encode()):
        assert isinstance(document, Document | Problem)
