"""What the commands show of workloads: Pods with claims of GPU slices."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click
import pytest
import yaml

from cli.objects import BORN, create, job, lists, node, partition, running, server
from cli.test_pictures import drawn
from cli.test_validate_workloads import claim, deployment, pod_spec, with_limits
from cli.workloads import allocate, create_workload, workload
from partita.claims.workloads import find_workloads
from partita.cli.cluster_state import state_of
from partita.cli.completions import complete_targets
from partita.cli.explain.command import command as explain_command
from partita.cli.explain.planned import planned
from partita.cli.explain.text import explanation_text, planned_text
from partita.cli.partitions.partition_view import Colours, partition_view
from partita.cli.terminal import UserError
from partita.console.ask_policies import ask_policies, put_back
from partita.console.explanation import explain
from partita.console.view import partitions_view
from partita.store.listing import Lists
from support.api import Api
from support.clusters import ApiServer
from support.polling import until

NOW = datetime(2026, 1, 1, 14, 0, 0, tzinfo=UTC)
TRAIN = job("train", "18Gi", status=running("shared-0"))
SERVE = workload("serve-5f6d8-one", on="shared-0", annotations={"partita.dev/framework": "PyTorch"})
SECOND = workload(
    "serve-5f6d8-two",
    "20Gi",
    says="InsufficientMemory: needs 20.0 GiB of GPU memory; the most that is free is 11.2 GiB",
    position=1,
    starts={"earliest": "2026-01-01T14:05:00Z", "reason": "too many wait before it"},
)
NOTEBOOK = workload(
    "notebook-0", None, gates=("kueue.x-k8s.io/admission",), labels={},
    owner={"kind": "StatefulSet", "name": "notebook", "uid": "uid-nb"},
)  # fmt: skip


def cluster() -> Lists:
    shared = server("shared-0", TRAIN, used={"train": "9Gi"})
    gpu = allocate(shared, SERVE[1], SERVE[0], idleSince="2026-01-01T13:00:00Z")
    return lists(
        node(), partition(policy={"name": "fifo"}), gpu, TRAIN, *SERVE, *SECOND, *NOTEBOOK
    )  # fmt: skip


@pytest.mark.parametrize("width", [80, 140])
def test_top_shows_workloads_beside_jobs(text_golden, width: int) -> None:
    (seen,) = partitions_view(state_of(cluster()), NOW)
    text = drawn(partition_view(seen, Colours(), queue_rows=5), width)
    assert max(map(len, text.splitlines())) <= width
    text_golden(f"top-workloads-{width}.txt", text)


@pytest.mark.parametrize(
    ("name", "phase"),
    [("serve-5f6d8-one", "Running"), ("serve-5f6d8-two", "Queued"), ("notebook-0", "Gated")],
)
async def test_explain_tells_where_a_workload_stands_and_what_it_asks_for(
    text_golden, name: str, phase: str
) -> None:
    found = cluster()
    state = state_of(found)
    (view,) = find_workloads("team", "Pod", name, state)
    assert view.phase == phase
    waiting = state_of(put_back(found, view.uid))
    answers = await ask_policies(waiting, view.uid, view.partition, NOW)
    about = replace(explain(view, state, NOW), named_frameworks=("PyTorch",), policies=answers)
    text = drawn(explanation_text([about]), 100)
    # How long it has waited, or has run no kernel, depends on today.
    lines = (line for line in text.splitlines() if not line.startswith(("Wait", "Idle")))
    text_golden(f"explain-{name}.txt", "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("kind", "name", "pods"),
    [("Deployment", "serve", ["serve-5f6d8-one", "serve-5f6d8-two"]),
     ("StatefulSet", "notebook", ["notebook-0"]), ("Deployment", "other", []),
     ("ResourceClaim", "notebook-0-gpu", ["notebook-0"])],
)  # fmt: skip
def test_workloads_are_found_by_their_controller_and_claim(
    kind: str, name: str, pods: list[str]
) -> None:
    assert sorted(v.name for v in find_workloads("team", kind, name, state_of(cluster()))) == pods


def test_a_pod_with_the_gate_and_no_claim_is_listed_with_what_to_write() -> None:
    gated, _ = workload("lost", gates=("partita.dev/allocation",), resourceClaims=[])
    state = state_of(lists(partition(), gated))
    (view,) = find_workloads("team", "Pod", "lost", state)
    assert (view.phase, view.reason, view.is_job) == ("Queued", "NoClaim", False)
    assert "name a ResourceClaimTemplate" in view.message
    assert explain(view, state, NOW).workload == view
    assert [seen.name for seen in partitions_view(state, NOW)] == ["shared"]


@pytest.mark.parametrize(
    ("says", "reason"),
    [("Idle: has run no kernel", "Idle"), ("OutOfMemory: gets no more", "OutOfMemory"),
     ("Allocated: 8.0 GiB", ""), ("InsufficientMemory: of yesterday", "")],
)  # fmt: skip
def test_a_workload_that_runs_has_a_reason_only_for_a_problem(says: str, reason: str) -> None:
    pod, claim = workload("one", on="shared-0", says=says)
    found = lists(node(), partition(), allocate(server("shared-0"), claim, pod), pod, claim)
    (view,) = find_workloads("team", "Pod", "one", state_of(found))
    assert (view.phase, view.reason) == ("Running", reason)


def test_a_service_whose_framework_asks_for_more_than_its_slice_is_told_what_to_set() -> None:
    pod, claim = workload("one", on="shared-0")
    (container,) = pod["status"]["containerStatuses"]
    said = "ValueError: No available memory for the cache blocks. Try increasing"
    ended = {"exitCode": 1, "message": said, "startedAt": BORN, "finishedAt": BORN}
    container["lastState"] = {"terminated": ended}
    state = state_of(
        lists(node(), partition(), allocate(server("shared-0"), claim, pod), pod, claim)
    )
    (view,) = find_workloads("team", "Pod", "one", state)
    advice = explain(view, state, NOW).advice
    assert "set --gpu-memory-utilization 0.187" in advice


CLAIM = claim(capacity={"requests": {"memory": "10Gi"}})
CREATED = {"resourceClaimTemplateName": "partita-10737418240"}
ASKS_IN_ITS_NAME = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "serve"}, "spec": pod_spec(CREATED),
}  # fmt: skip


@pytest.mark.parametrize(
    "planned_objects",
    [[CLAIM, deployment(pod_spec())], [deployment(with_limits(gpu_memory="10Gi"))],
     [ASKS_IN_ITS_NAME], [job("serve", "10Gi")]],
)  # fmt: skip
def test_a_plan_is_told_what_to_set_on_each_gpu_that_is_large_enough(
    planned_objects: list[dict[str, Any]],
) -> None:
    small, large = server("shared-1"), server("shared-2")
    small["status"]["memory"], large["status"]["memory"] = "8Gi", "80Gi"
    state = state_of(lists(node(), partition(), server("shared-0"), small, large))
    content = yaml.safe_dump_all(planned_objects).encode()
    (found,) = planned("f", content, state)
    assert (found.name, found.partition) == ("serve", "shared")
    text = drawn(planned_text([found]), 100)
    on = [line.split()[-1] for line in text.splitlines() if line.startswith(("What", "vLLM"))]
    assert on == ["shared-0", "0.237", "shared-2", "0.118"]


@pytest.mark.parametrize(
    ("plan", "said"),
    [(job("serve", None), "nothing to set: its memory is not written, or"),
     (job("serve", "100Gi"), "no GPU that is large enough"),
     (job("serve", partition="shred"), "no GPUPartition shred: name one that is there (shared)")],
)  # fmt: skip
def test_a_plan_with_nothing_to_set_says_why(plan: dict[str, Any], said: str) -> None:
    state = state_of(lists(node(), partition(), server("shared-0")))
    (found,) = planned("f", yaml.safe_dump(plan).encode(), state)
    assert said in found.note


@pytest.mark.parametrize(
    ("content", "said"),
    [([{"kind": "ConfigMap"}], "nothing in f asks for a slice of a GPU: write a SharedGPUJob"),
     ([job("serve", "10Gi", gpuMemory="ten")], "SharedGPUJob/serve: spec.gpuMemory")],
)  # fmt: skip
def test_a_plan_without_a_right_request_is_refused(content: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        planned("f", yaml.safe_dump_all(content).encode(), state_of(lists(partition())))


def settings(found: Lists, pod: str) -> dict[str, tuple[str, str]]:
    state = state_of(found)
    (view,) = find_workloads("team", "Pod", pod, state)
    return {s.name: (s.value, s.source) for s in explain(view, state, NOW).settings}


def test_each_setting_says_where_it_is_written() -> None:
    notes = {
        "partita.dev/gpu-memory": "6Gi",
        "partita.dev/application": "resnet",
        "partita.dev/processes": "2",
        "partita.dev/expected-duration": "20m",
    }
    body = workload("serve-5f6d8-one", None, threads="25", annotations=notes, priority=7)
    found = settings(lists(node(), partition(), *body), "serve-5f6d8-one")
    assert found == {
        "GPU memory": ("6Gi", "annotation partita.dev/gpu-memory of its Pod"),
        "GPU threads": ("25 %", "ResourceClaimTemplate gpu-8gi"),
        "Processes": ("2", "annotation partita.dev/processes of its Pod"),
        "Expected duration": ("20m", "annotation partita.dev/expected-duration of its Pod"),
        "Application": ("resnet", "annotation partita.dev/application of its Pod"),
        "Priority": ("7", "priority of its Pod"),
        "Ends": ("by itself", "annotation partita.dev/expected-duration of its Pod"),
    }


@pytest.mark.parametrize(
    ("memory", "entry", "device_class", "expected"),
    [
        ("6Gi", {"resourceClaimTemplateName": "partita-shared-6442450944"}, "shared",
         ("6.0 GiB", "limit partita.dev/gpu-memory of its container")),
        (
            None,
            {},
            "half.shared",
            (
                "18.0 GiB (slice half)",
                "device class half.shared.gpu.partita.dev, ResourceClaimTemplate gpu-8gi",
            ),
        ),
    ],
)  # fmt: skip
def test_the_memory_says_where_it_comes_from(
    memory: str | None, entry: dict[str, Any], device_class: str, expected: tuple[str, str]
) -> None:
    pod, claim = workload("one", memory, device_class=f"{device_class}.gpu.partita.dev")
    pod["spec"]["resourceClaims"][0].update(entry)
    pool = partition(slices=[{"name": "half", "memory": "18Gi"}])
    assert settings(lists(node(), pool, pod, claim), "one")["GPU memory"] == expected


@pytest.fixture
async def pool(api: Api, namespace: str, partita):
    """A partition of the test with one GPU, on which a workload runs, and one that waits."""
    name = f"pool-{namespace}"
    common = {"namespace": namespace, "device_class": f"{name}.gpu.partita.dev"}
    await create(api, partition(name, gpus=1, policy={"name": "fifo"}))
    notes = {"partita.dev/framework": "PyTorch"}
    runs = workload("serve-5f6d8-one", annotations=notes, **common)
    pod, claim = await create_workload(api, *runs)
    says = "NeverFits: needs 80.0 GiB of GPU memory"
    await create_workload(api, *workload("big", "80Gi", says=says, **common))
    gpu = await create(api, allocate(server(f"{name}-0", of=name), claim, pod))
    yield name
    for path in (f"gpupartitions/{name}", f"gpuservers/{gpu['metadata']['name']}"):
        await api.delete(f"/apis/partita.dev/v1alpha1/{path}")


async def test_workloads_are_listed_with_state_and_reason(
    partita, pool: str, namespace: str
) -> None:
    result = await partita("workloads", "-n", namespace)
    head, *lines = [line.split() for line in result.stdout.splitlines()]
    assert head == [
        "NAME", "OF", "PARTITION", "PHASE", "POSITION", "STARTS", "REQUEST", "USED", "IDLE",
        "AGE", "REASON",
    ]  # fmt: skip
    assert [line[:4] for line in lines] == [
        ["serve-5f6d8-one", "PyTorchJob/serve", pool, "Assigned"],
        ["big", "PyTorchJob/serve", pool, "Queued"],
    ]
    assert lines[1][-1] == "NeverFits"
    rows = json.loads((await partita("workloads", "-n", namespace, "-o", "json")).stdout)
    assert (rows[0]["gpuMemory"], rows[0]["used"], rows[0]["lasting"]) == (8 << 30, 2 << 30, True)
    wide = (await partita("workloads", "-A", "-o", "wide")).stdout
    assert f"{pool}-0" in wide
    assert "needs 80.0 GiB of GPU memory" in wide


async def test_what_is_not_applied_yet_is_explained(partita, pool: str, tmp_path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("train", "8Gi", partition=pool)))
    text = (await partita("explain", "-f", str(file))).stdout
    assert "--gpu-memory-utilization 0.187" in text
    (found,) = json.loads((await partita("explain", "-f", str(file), "-o", "json")).stdout)
    assert found["frameworks"][0]["gpus"] == [f"{pool}-0"]


async def test_a_pod_and_the_pods_of_a_controller_are_explained(
    partita, pool: str, namespace: str
) -> None:
    text = (await partita("explain", "pod/big", "-n", namespace)).stdout
    assert f"{namespace}/big  waits  service of PyTorchJob/serve, partition {pool}" in text
    assert "NeverFits: needs 80.0 GiB of GPU memory" in text
    text = (await partita("explain", "pytorchjob/serve", "-n", namespace)).stdout
    assert text.index("big  waits") < text.index("serve-5f6d8-one  has a slice, its Pod starts")
    assert "PYTORCH_ALLOC_CONF" in text
    assert "vLLM" not in text
    (waits, runs) = json.loads(
        (await partita("explain", "pytorchjobs/serve", "-n", namespace, "-o", "json")).stdout
    )
    assert (waits["name"], waits["workload"]["phase"]) == ("big", "Queued")
    assert runs["workload"]["place"]["server"] == f"{pool}-0"
    source = "ResourceClaimTemplate gpu-8gi"
    assert runs["settings"][0] == {"name": "GPU memory", "value": "8.0 GiB", "source": source}


WRONG_NAMES = {
    "pod/none": "there is no Pod none in namespace {ns}; see `partita workloads -A`",
    "deployment/none": (
        "there is no Pod of Deployment none with a claim of a GPU slice in namespace {ns}; see "
        "`partita workloads -A`"
    ),
    "big": (
        "there is no SharedGPUJob big in namespace {ns}; a Pod has this name: `partita explain "
        "pod/big -n {ns}` shows it"
    ),
    "pod/train": (
        "there is no Pod train in namespace {ns}; a SharedGPUJob has this name: write `partita "
        "explain {ns}/train`"
    ),
    "pod/plain": (
        "Pod plain in namespace {ns} has no claim of a GPU slice that is in use: its "
        "spec.resourceClaims names no device class of Partita, or its claim is not made yet "
        "(`kubectl describe pod plain -n {ns}`), or it has ended"
    ),
}


@pytest.mark.parametrize(("target", "said"), WRONG_NAMES.items(), ids=WRONG_NAMES)
async def test_a_wrong_name_says_what_to_write(
    partita, api: Api, pool: str, namespace: str, target: str, said: str
) -> None:
    await create(api, job("train", "1Gi", namespace=namespace, partition=pool))
    spec = {"containers": [{"name": "main", "image": "example.org/serve:1"}]}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": spec}
    (await api.post(f"/api/v1/namespaces/{namespace}/pods", plain)).ok()
    result = await partita("explain", target, "-n", namespace, code=1)
    assert result.stderr == f"Error: {said.format(ns=namespace)}\n"


async def test_pods_and_claims_are_completed(
    monkeypatch: pytest.MonkeyPatch, api_server: ApiServer, pool: str, namespace: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    ctx = click.Context(explain_command, info_name="explain")
    ctx.params = {"namespace": namespace}
    param = explain_command.params[0]

    async def offered(begun: str) -> set[str]:
        found = await asyncio.to_thread(complete_targets, ctx, param, begun)
        return {item.value for item in found}

    assert await until(lambda: offered("pod/")) == {"pod/serve-5f6d8-one", "pod/big"}
    assert await until(lambda: offered("po")) == {"pod/serve-5f6d8-one", "pod/big"}
    assert await until(lambda: offered("claim/b")) == {"claim/big-gpu"}
    assert await offered("") == set()  # without jobs


async def test_a_pod_in_another_namespace_is_found(partita, pool: str, namespace: str) -> None:
    result = await partita("explain", "pod/big", "-n", "default", code=1)
    there, _, advice = result.stderr.partition("it is in ")[2].partition(": write -n ")
    assert namespace in there.split(", ")  # other tests may have a Pod of this name
    assert advice.strip() in there.split(", ")
