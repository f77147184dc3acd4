"""This operator takes over what the first one left: running jobs go on, waiting ones start."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from models.objects import job as a_job
from partita.models import crd
from partita.operator import crd_check
from partita.partitions import status_writer as partition_statuses
from partita.validation.schema import CRDValidator
from partita_testcluster.nodes import NodeSpec
from support.api import Api
from support.clusters import embedded_server
from support.crds import DEFINITIONS
from support.history import PATHS, History, Version
from support.operator import GIB, OPERATOR_NAMESPACE, System
from support.polling import until
from upgrade.restoring import definitions as first_definitions
from upgrade.restoring import recorded, restore

Body = dict[str, Any]

NAMESPACE = "team-vision"
RUNNING = ("grows", "runs-1", "runs-2")
ESTABLISHED = [{"type": "Established", "status": "True"}]
SPEED = 20.0
"""As recorded: jobs that run take half an hour, the others half a second."""


def same(found: dict[str, Body], before: dict[str, Body], *names: str) -> None:
    """Assert that nobody has written these objects, and that they are the same ones."""
    for name in names:
        assert found[name] == before[name]


async def by_name(api: Api, plural: str) -> dict[str, Body]:
    items = (await api.get(PATHS[plural])).ok().body["items"]
    return {item["metadata"]["name"]: item for item in items}


def allocated(system: System) -> set[str]:
    """Return the UIDs of the jobs in the ledger."""
    ledgers = (server["status"].get("allocations", {}) for server in system.servers("shared"))
    return {uid for ledger in ledgers for uid in ledger}


async def take_note(history: History, api: Api) -> None:
    """Judge what was restored as if it had been made now, but for what had ended before."""
    for plural, path in PATHS.items():
        for body in (await api.get(path)).ok().body["items"]:
            if body.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
                history._before.discard(body["metadata"]["uid"])
                number = int(body["metadata"]["resourceVersion"])
                history.take(plural, Version(number, "ADDED", body, 0.0))


@pytest.fixture
async def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[System]:
    """The cluster that the first operator left: its CRDs, objects and running Pods."""
    monkeypatch.setattr(crd_check, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(partition_statuses, "_PERIOD", 0.05)
    with embedded_server(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        async with server.session() as session:
            api = server.api(session)
            for name in (OPERATOR_NAMESPACE, NAMESPACE):
                meta = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                (await api.post("/api/v1/namespaces", meta)).ok()
            await restore(api)
            history = History(api)
            async with history.recording():
                await take_note(history, api)
                system = System(api, history, server, NAMESPACE)
                system.stem = "node"  # the recorded one is called gpu-node
                with structlog.testing.capture_logs() as logs:
                    system.logs = logs
                    async with system.nodes(specs=[NodeSpec("gpu", 2, 40 * GIB)], speed=SPEED):
                        yield system
                problems = history.problems()
    assert not problems, "\n".join(problems)


async def upgrade_crds(api: Api) -> None:
    for definition in crd.crds():
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        (await api.patch(path, {"spec": definition["spec"]})).ok()


async def test_jobs_that_run_go_on_and_those_that_wait_start(system: System) -> None:
    api, history = system.api, system.history
    pods, jobs = await by_name(api, "pods"), await by_name(api, "sharedgpujobs")
    await upgrade_crds(api)
    async with system.operator(server_namespace=OPERATOR_NAMESPACE):
        # Their agents are device plugins, so these GPUs take no jobs while the earlier ones run.
        await system.partition_says("shared", lambda s: "agent is of an earlier release" in str(s))
        await system.found("rests").change(suspend=False)
        for name in ("rests", "waits"):
            await system.found(name).waits("NoGPUReady", "none of the 2 GPUs of shared is ready")
        assert len(history.job_pods()) == len(RUNNING)
        same(await by_name(api, "pods"), pods, *pods)
        # A GPU gets an agent of this release when the last of its earlier jobs has ended.
        await system.found("runs-2").delete()
        for name in ("rests", "waits"):
            await system.found(name).succeeds()
        found = await by_name(api, "pods")
        assert {**pods, **found}.keys() == {*pods, "rests-1", "waits-1"}
        same(found, pods, *(pods.keys() - {"runs-2-1", "shared-1"}))
        now = await by_name(api, "sharedgpujobs")
        same(now, jobs, "done", "failed")
        for name in ("grows", "runs-1"):
            assert now[name]["status"]["assignment"] == jobs[name]["status"]["assignment"]
            assert now[name]["status"]["phase"] == "Running"
        agents = {s["metadata"]["name"]: "claims" in s["status"] for s in system.servers("shared")}
        assert agents == {"shared-0": False, "shared-1": True}
        left = {now[name]["metadata"]["uid"] for name in ("grows", "runs-1")}
        await history.until(lambda: allocated(system) == left, what=lambda: allocated(system))


async def test_before_its_crds_it_says_what_they_lack_and_touches_nothing(system: System) -> None:
    api = system.api
    kinds = ("pods", "sharedgpujobs", "gpupartitions")
    before = {plural: await by_name(api, plural) for plural in kinds}
    async with system.operator(server_namespace=OPERATOR_NAMESPACE):
        said = await until(
            lambda: [e["why"] for e in system.logs if e["event"] == "waiting for the API server"]
        )
        for plural in ("gpuservers", "sharedgpujobs"):
            assert f"CRD {plural}.partita.dev is older than this release and lacks" in said[0]
        assert "partita crds --install" in said[0]
        assert {plural: await by_name(api, plural) for plural in kinds} == before
        await upgrade_crds(api)
        await system.found("runs-2").delete()
        await system.found("waits").succeeds()


def test_the_record_is_of_all_that_a_job_can_be() -> None:
    phases = {b["metadata"]["name"]: b["status"]["phase"] for b in recorded() if "Job" in b["kind"]}
    assert phases == {
        "done": "Succeeded",
        "failed": "Failed",
        **dict.fromkeys(RUNNING, "Running"),
        "rests": "Suspended",
        "waits": "Queued",
    }


@pytest.mark.parametrize("first", first_definitions(), ids=lambda d: d["spec"]["names"]["kind"])
def test_fields_were_only_added_since(first: Body) -> None:
    """The promise of docs/versioning.md, on the CRDs that were the first."""
    (now,) = (d for d in crd.crds() if d["metadata"]["name"] == first["metadata"]["name"])
    assert crd_check.shortcoming(first, now | {"status": {"conditions": ESTABLISHED}}) == ""
    old, new = (_schema(definition) for definition in (first, now))
    assert not list(_demands(old, new))


FIELDS: dict[str, list[Any]] = {
    "partition": ["shared", "other"],
    "gpuMemory": ["4Gi", "8Gi"],
    "threadPercent": [50, 60],
    "processes": [2, 3],
    "gpus": [1, 2],
    "slice": ["small", "large"],
    "framework": ["PyTorch", "JAX"],
    "priority": [0, 1],
    "suspend": [False, True],
}
PHASES = (None, "Queued", "Suspended", "Assigned", "Running", "Failed")


@pytest.fixture(scope="module")
def validators() -> list[CRDValidator]:
    """Return what the first and today's CRDs say about jobs."""
    name = "sharedgpujobs.partita.dev"
    crds = (first_definitions(), crd.crds())
    return [CRDValidator.from_crd(d) for c in crds for d in c if d["metadata"]["name"] == name]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("phase", PHASES)
def test_what_could_be_changed_of_a_job_still_can(
    validators: list[CRDValidator], field: str, phase: str | None
) -> None:
    """Rules about changes may be put in other words: what they let pass is compared."""
    status = {"status": {"phase": phase}} if phase else {}
    specs: list[Body] = [{}, *({field: value} for value in FIELDS[field])]
    for old, new in itertools.permutations(specs, 2):
        before, after = (a_job(**spec) | status for spec in (old, new))
        first, now = (bool(validator.validate(after, before)) for validator in validators)
        assert first == now, (old, new)


def _schema(definition: Body) -> Body:
    (version,) = definition["spec"]["versions"]
    schema: Body = version["schema"]["openAPIV3Schema"]
    return schema


def _fields(schema: Body) -> set[str]:
    """Return the names of all fields in a schema."""
    below = [*schema.get("properties", {}).values()]
    below += [
        schema[k] for k in ("items", "additionalProperties") if isinstance(schema.get(k), dict)
    ]
    return {*schema.get("properties", {})}.union(*map(_fields, below))


def _demands(old: Body, new: Body, path: str = "") -> Iterator[str]:
    """Find what an object that was right must have now, or may not have any more.

    A rule about a field that the first definitions lack concerns only objects that use it.
    """
    added = _fields(new) - _fields(old)
    for name in set(new.get("required", ())) - set(old.get("required", ())):
        yield f"{path}.{name} is required"
    if old.get("type") != new.get("type"):
        yield f"{path} was of type {old.get('type')}"
    if "enum" in new and not set(old.get("enum", ())) <= set(new["enum"]):
        yield f"{path} may not be {set(old['enum']) - set(new['enum'])}"
    rules = {rule["rule"] for rule in old.get("x-kubernetes-validations", ())}
    for rule in new.get("x-kubernetes-validations", ()):
        unusable = "above zero and below 8Ei" in rule["message"]  # no model could read it
        wider = rule["rule"].replace("maxJobsPerGPU <= 60", "maxJobsPerGPU <= 48") in rules
        optional = bool(added & set(re.findall(r"\w+", rule["rule"])))
        if not (wider or "oldSelf" in rule["rule"] or unusable or optional):
            yield f"{path} has a new rule: {rule['rule']}"
    for name, field in old.get("properties", {}).items():
        yield from _demands(field, new["properties"][name], f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), dict):
            yield from _demands(old[key], new[key], f"{path}[]")
