"""top and explain on an API server, and what they say when something is missing."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import yaml

from cli.objects import create, job, node, partition, running, server, server_pod
from partita.accounting.daily_usage import Amounts, DailyUsage, UsageKey
from partita.cli.cluster_state import state_of
from partita.cli.connection import explained, readable
from partita.cli.terminal import UserError
from partita.kube.client import PARTITIONS
from partita.kube.errors import (
    ConflictError,
    DefinitionError,
    ForbiddenError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
)
from partita.models import GPUPartition
from partita.store.state import State
from partita.store.watched_kinds import feeds
from support.api import Api


@pytest.fixture
async def names(api: Api, namespace: str, partita):
    """A partition with one GPU, a job on it and two that wait; all are named after the test's
    namespace."""
    pool, machine = f"pool-{namespace}", f"node-{namespace}"
    gpu = f"{pool}-0"
    common = {"namespace": namespace, "partition": pool}
    await create(api, node(machine))
    await create(
        api, partition(pool, gpus=1, policy={"name": "fifo"}, fairness={"halfLife": "24h"})
    )
    held = await create(api, job("held", "30Gi", status=running(gpu), **common))
    for name, memory in (("small", "5Gi"), ("large", "20Gi")):
        await create(api, job(name, memory, status={"phase": "Queued"}, **common))
    on = server(gpu, held, on=machine, of=pool)
    created = await create(api, on)
    await create(api, server_pod(gpu, namespace))
    yield {"namespace": namespace, "pool": pool, "gpu": gpu}
    for path in (f"gpupartitions/{pool}", f"gpuservers/{created['metadata']['name']}"):
        await api.delete(f"/apis/partita.dev/v1alpha1/{path}")
    await api.delete(f"/api/v1/nodes/{machine}")


async def test_top_shows_a_partition_once(partita, names) -> None:
    result = await partita("top", names["pool"], "--once")
    head, bar, *_ = result.stdout.splitlines()
    assert head == (
        f"{names['pool']}  MPS · policy fifo (Makespan) · 1 of 1 GPUs ready · 1 running · 2 waiting"
    )
    assert bar.startswith(f"{names['gpu']}  |held")
    assert bar.endswith("30.0/37.2 GiB   0 %")
    assert sorted(line.split()[0] for line in result.stdout.splitlines()[3:]) == [
        f"{names['namespace']}/large",
        f"{names['namespace']}/small",
    ]
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        (pool,) = read((await partita("top", names["pool"], "--output", form)).stdout)
        assert [piece["name"] for piece in pool["gpus"][0]["slices"]] == ["held"]
        assert pool["gpus"][0]["allocatable"] == (40 << 30) * 93 // 100 // (1 << 20) * (1 << 20)


async def test_top_names_the_partitions_there_are(partita, names) -> None:
    result = await partita("top", "nowhere", code=1)
    assert result.stderr.startswith("Error: there is no GPUPartition nowhere (there is: ")
    assert names["pool"] in result.stderr


async def test_explain_asks_each_policy_about_a_waiting_job(partita, names) -> None:
    small = await partita("explain", f"{names['namespace']}/small", "--policies", "-o", "json")
    (answer,) = json.loads(small.stdout)
    verdicts = {v["policy"]: v for v in answer["policies"]}
    assert verdicts["fifo"]["role"] == "active"
    assert verdicts["fifo"]["decision"] == "start"
    assert verdicts["fifo"]["gpus"] == [names["gpu"]]
    assert verdicts["fifo"]["beside"] == [f"{names['namespace']}/held"]
    large = await partita("explain", "large", "-n", names["namespace"], "--policies")
    said = " ".join(large.stdout.split())
    assert "needs 20.0 GiB of GPU memory; the most that is free is 2.2 GiB of 37.2 GiB" in said


async def test_explain_asks_in_the_order_of_past_use(
    partita, names, api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`small` and `default/other` want the last 7.2 GiB. Only now `default` has used less."""
    monkeypatch.setenv("PARTITA_NAMESPACE", namespace)
    now = datetime.now(UTC)
    used = {UsageKey(names["pool"], "default", ""): Amounts(dominant_seconds_allocated=1e6)}
    record = {"data": DailyUsage(now.date(), now, used).dump(), "metadata": {
        "name": "usage", "labels": {"partita.dev/component": "usage"}}}  # fmt: skip
    waiting = {"partition": names["pool"], "status": {"phase": "Queued"}}
    await create(api, job("other", "5Gi", namespace="default", **waiting))
    for decision in ("wait", "start"):
        asked = await partita("explain", f"{namespace}/small", "--policies", "-o", "json")
        assert json.loads(asked.stdout)[0]["policies"][0]["decision"] == decision
        await api.post(f"/api/v1/namespaces/{namespace}/configmaps", record)
    await api.delete("/apis/partita.dev/v1alpha1/namespaces/default/sharedgpujobs/other")


async def test_explain_says_where_a_job_of_that_name_is(partita, names) -> None:
    result = await partita("explain", "small", code=1)
    assert result.stderr.startswith("Error: there is no SharedGPUJob small in namespace default; ")
    assert f"{names['namespace']}" in result.stderr
    result = await partita("explain", "nothing-is-called-so", code=1)
    assert "see `partita jobs -A`" in result.stderr


WHAT = "GET /apis/partita.dev/v1alpha1/gpupartitions"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ForbiddenError(WHAT, 403, "gpupartitions is forbidden"),
         "gpupartitions is forbidden: ask for a role that allows it"),
        (NotFoundError(WHAT, 404, "the server could not find the requested resource"),
         "the CRDs of Partita are not installed in this cluster: run `partita crds --install`"),
        (NotFoundError(f"{WHAT}/a", 404, 'gpupartitions.partita.dev "a" not found'),
         f'{WHAT}/a: 404 gpupartitions.partita.dev "a" not found'),
        (NotFoundError("GET /apis/resource.k8s.io/v1/resourceclaims", 404, "404 page not found"),
         ("this cluster does not serve resource.k8s.io/v1, so no Pod has a slice by a claim: that "
          "needs Kubernetes 1.34")),
        (NotFoundError("POST /x", 404, 'namespaces "team-a" not found'),
         ("namespace team-a does not exist: name another with -n, or create it with `kubectl "
          "create namespace team-a`")),
        (ForbiddenError(WHAT, 401, "Unauthorized"),
         "the API server does not accept the kubeconfig's credentials: log in again"),
        (NotFoundError("GET /api/v1/nodes/a", 404, "none"), "GET /api/v1/nodes/a: 404 none"),
        (ConflictError("PUT /x", 409, "newer"), "PUT /x: 409 newer"),
        (UnavailableError("PUT /x", 503, "etcd is down"),
         "the API server reports an error, try again later: etcd is down"),
        (LeaseLostError("lost"), "lost. Start the operator again; in a cluster, its Pod does"),
        (ExceptionGroup("together", [DefinitionError("there is no CRD x")]),
         "there is no CRD x. Start the operator again; in a cluster, its Pod does"),
        (ExceptionGroup("", [ExceptionGroup("", [ConflictError("PUT /x", 409, "newer")])]),
         "PUT /x: 409 newer"),
    ],
)  # fmt: skip
def test_what_goes_wrong_with_a_cluster_is_a_sentence(error: Exception, said: str) -> None:
    with pytest.raises(UserError) as told, explained():
        raise error
    assert told.value.message == said


def test_a_fault_of_ours_is_not_explained_away() -> None:
    with pytest.raises(ExceptionGroup), explained():
        raise ExceptionGroup("", [ZeroDivisionError()])


def unreadable_partition():
    meta = {"name": "huge", "uid": "uid-huge", "resourceVersion": "1"}
    spec = {"gpus": 1, "quotas": [{"namespace": "a", "memory": "8Ei"}]}
    return {"metadata": meta, "spec": spec}


def test_an_object_that_cannot_be_read_is_named_and_the_others_are_shown(capsys) -> None:
    lists = {kind: [] for kind in feeds(State())}
    good = {"metadata": {"name": "good", "uid": "u", "resourceVersion": "2"}, "spec": {"gpus": 1}}
    lists[PARTITIONS] = [unreadable_partition(), good]
    assert list(state_of(lists).partitions) == ["good"]
    said = " ".join(capsys.readouterr().err.split())
    assert "gpupartitions huge is left out, it cannot be read: spec.quotas[0].memory: " in said


def test_a_command_about_an_object_that_cannot_be_read_says_what_to_do() -> None:
    with pytest.raises(UserError, match=r"GPUPartition huge cannot be read .*kubectl edit"):
        readable(GPUPartition, unreadable_partition())
