"""What the API server accepts of a user, and what it answers to the rest.

The suite runs on the embedded server and on a real kube-apiserver alike.
"""

import asyncio
import json
from datetime import UTC, timedelta

import pytest

from models.objects import BOUNDS, GROUP_VERSION, RULES, job, partition, profile, server
from partita.models import crd
from partita.models.quantities import parse_duration, parse_gpu_memory, parse_memory, parse_time
from support.polling import TIMEOUT

pytestmark = pytest.mark.usefixtures("partita_kinds")

PLURALS = {resource.kind: resource.plural for resource in crd.RESOURCES}
CLUSTER_WIDE = {resource.kind for resource in crd.RESOURCES if not resource.namespaced}


@pytest.fixture
def collection(namespace):
    """Return a function from an object to the path of its collection."""

    def path(body):
        within = "" if body["kind"] in CLUSTER_WIDE else f"/namespaces/{namespace}"
        return f"/apis/{GROUP_VERSION}{within}/{PLURALS[body['kind']]}"

    return path


def causes(answer):
    assert answer.status == 422, answer
    return [(c["field"], c["message"]) for c in answer.body["details"]["causes"]]


def case(entry):
    body, *_, blamed = entry if len(entry) == 2 else entry[:3]
    return f"{body['kind']}-{blamed or 'name'}"


@pytest.mark.parametrize(("wrong", "right", "field", "words"), RULES, ids=map(case, RULES))
async def test_a_rule_refuses_with_a_way_out_that_works(
    api, collection, wrong, right, field, words
):
    (cause,) = causes(await api.post(collection(wrong), wrong, dryRun="All"))
    assert cause[0] in {field, field or "<nil>"}
    assert words in cause[1]
    accepted = await api.post(collection(right), right, dryRun="All")
    assert accepted.status == 201, accepted


@pytest.mark.parametrize(("wrong", "field"), BOUNDS, ids=map(case, BOUNDS))
async def test_the_schema_refuses_and_names_the_field(api, collection, wrong, field):
    refused = await api.post(collection(wrong), wrong, dryRun="All")
    assert field in [named for named, _ in causes(refused)]


FROZEN = {
    "partition": "other",
    "gpuMemory": "9Gi",
    "gpuMemoryLimit": "12Gi",
    "threadPercent": 60,
    "processes": 3,
    "gpus": 2,
    "framework": "JAX",
}


async def running_job(api, path, body):
    """Create it and write the status that the operator would."""
    created = (await api.post(path, body)).ok().body
    name = f"{path}/{created['metadata']['name']}"
    (await api.patch(f"{name}/status", {"status": {"phase": "Running"}})).ok()
    return name


@pytest.mark.parametrize("field", FROZEN)
async def test_a_started_job_keeps_what_it_was_placed_by(api, collection, field):
    body = job(gpuMemory="4Gi", threadPercent=50)
    name = await running_job(api, collection(body), body)
    change = {"spec": {field: FROZEN[field]}}
    ((blamed, message),) = causes(await api.patch(name, change))
    assert blamed == "spec"
    assert field in message
    assert "cannot change once the job has started: set spec.suspend to true" in message
    (await api.patch(name, {"spec": {"suspend": True}})).ok()
    for phase in ("Suspended", "Failed"):
        (await api.patch(f"{name}/status", {"status": {"phase": phase}})).ok()
        (await api.patch(name, change, dryRun="All")).ok()


async def test_a_started_job_keeps_its_slice(api, collection):
    body = job(slice="small")
    name = await running_job(api, collection(body), body)
    for change in ({"slice": "large"}, {"slice": None}):
        ((blamed, message),) = causes(await api.patch(name, {"spec": change}))
        assert blamed == "spec"
        assert "slice and framework cannot change once the job has started" in message


async def test_a_started_job_may_change_in_all_else(api, collection):
    body = job(gpuMemory="4Gi")
    name = await running_job(api, collection(body), body)
    spec = {"priority": 7, "retry": {"limit": 1}, "activeDeadlineSeconds": 60}
    (await api.patch(name, {"spec": spec})).ok()
    (await api.patch(f"{name}/status", {"status": {"phase": "Succeeded"}})).ok()


async def test_a_server_stays_in_its_partition(api, collection):
    body = server("stays-0")
    (await api.post(collection(body), body)).ok()
    name = f"{collection(body)}/stays-0"
    ((field, message),) = causes(await api.patch(name, {"spec": {"partition": "other"}}))
    assert field == "spec.partition"
    assert "delete it, and scale up the partition" in message
    (await api.delete(name)).ok()


def test_every_rule_has_a_case():
    def rules(node):
        if isinstance(node, dict):
            yield from (r["message"] for r in node.get("x-kubernetes-validations", ()))
            for child in node.values():
                yield from rules(child)

    written = {m for d in crd.crds() for m in rules(d["spec"]["versions"][0]["schema"])}
    exercised = [words for *_, words in RULES]
    exercised += [f"{field} cannot change" for field in (*FROZEN, "slice")]
    exercised += ["delete it, and scale up the partition"]
    assert [m for m in written if not any(words in m for words in exercised)] == []


async def test_a_job_keeps_its_whole_template(api, collection):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "main", "image": "i", "env": [{"name": "X", "value": "1"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }
    body = job(template=template)
    stored = (await api.post(collection(body), body, dryRun="All")).ok().body
    assert stored["spec"]["template"] == template


async def test_a_policy_keeps_parameters_that_only_it_knows(api, collection):
    parameters = {"weights": [1, 2.5], "nested": {"on": True}}
    body = partition(policy={"parameters": parameters})
    stored = (await api.post(collection(body), body, dryRun="All")).ok().body
    assert stored["spec"]["policy"]["parameters"] == parameters


async def test_what_the_api_server_stores_the_models_read_with_the_same_defaults(api, collection):
    for resource, body in zip(
        crd.RESOURCES, (partition(), job(), server(), profile()), strict=True
    ):
        stored = (await api.post(collection(body), body, dryRun="All")).ok().body
        # A template is kept as text, and the API server sorts its keys.
        read, written = (
            resource.model.parse(json.loads(json.dumps(one, sort_keys=True)))
            for one in (stored, body)
        )
        assert read.metadata.name == written.metadata.name
        assert read.spec == written.spec


@pytest.mark.parametrize(
    "amount", ["1Mi", 1 << 20, "0.5Gi", "1e9", "1E9", "3000Ki", "7Ei", ".5G", "+1048576"]
)
async def test_a_quantity_that_the_api_server_takes_the_models_read(api, collection, amount):
    body = job(gpuMemory=amount)
    assert (await api.post(collection(body), body, dryRun="All")).status == 201
    assert parse_gpu_memory(amount) > 0


@pytest.mark.parametrize(
    "amount",
    [
        *("8Ei", "1e19", "1e30", "1e99", "9223372036854775807", 9223372036854775807),
        *("1e2147483647", "1E+999999999", "9" * 400),
    ],
)
async def test_a_quantity_that_is_too_large_is_refused_by_both_at_once(api, collection, amount):
    body = job(gpuMemory=amount)
    async with asyncio.timeout(TIMEOUT):  # a real API server hung on the exponents
        refused = await api.post(collection(body), body, dryRun="All")
    assert "spec.gpuMemory" in [field for field, _ in causes(refused)]
    with pytest.raises(ValueError, match="is too large: write an amount below 8Ei"):
        parse_memory(amount)


async def test_the_largest_quantity_is_read(api, collection):
    for amount in ("9223372036854775806", 9223372036854775806, "7.999999999Ei"):
        body = job(gpuMemory=amount)
        (await api.post(collection(body), body, dryRun="All")).ok()
        assert parse_memory(amount) > 7 << 60


@pytest.mark.parametrize(
    "time",
    [
        "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "3000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00+99:99", "2026-01-01T00:00:00x12Z",
        "2026-01-01t00:00:00z",
    ],
)  # fmt: skip
async def test_a_time_that_cannot_be_reckoned_with_is_refused(api, collection, time):
    body = server(drainSince=time)
    refused = await api.post(collection(body), body, dryRun="All")
    assert "spec.drainSince" in [field for field, _ in causes(refused)]


@pytest.mark.parametrize(
    "time", ["1000-01-01T00:00:00+14:59", "2999-12-31T23:59:59.999999999-14:59"]
)
async def test_the_first_and_the_last_time_can_be_reckoned_with(api, collection, time):
    body = server(drainSince=time)
    (await api.post(collection(body), body, dryRun="All")).ok()
    longest = timedelta(seconds=parse_duration("9999999h9999999h9999999h9999999h"))
    assert (parse_time(time) + longest).astimezone(UTC) > parse_time(time)


@pytest.mark.parametrize("amount", ["", "Gi", "1ki", "1K", "4 Gi", "0x1", "1e", "٤", "1.2.3"])
async def test_a_quantity_that_the_models_refuse_the_api_server_refuses(api, collection, amount):
    body = job(gpuMemory=amount)
    assert (await api.post(collection(body), body, dryRun="All")).status == 422
    with pytest.raises(ValueError, match="is no quantity"):
        parse_memory(amount)
