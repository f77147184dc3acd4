"""A Pod with the limits partita.dev/gpu-memory and gpu-threads becomes one with a claim."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from manifests.pods import CORE, pod
from manifests.rendering import ROOT
from support.api import Answer, Api
from support.kubectl import Kubectl
from support.polling import until

LIMITS = ROOT / "manifests" / "limits"


@pytest.fixture
async def limits(api: Api, kubectl: Kubectl, enforced: str) -> str:
    """A namespace in which limits are replaced by now."""
    (await kubectl("apply", "-k", str(LIMITS))).ok()

    async def is_replaced() -> bool:
        answer = await create(api, enforced, asking("1Gi"))
        return "resourceClaims" in answer.body.get("spec", {})

    await until(is_replaced)

    async def is_refused() -> bool:
        return (await create(api, enforced, asking("1"))).status == 422

    await until(is_refused)
    return enforced


def asking(memory: str, threads: str = "", **container: Any) -> dict[str, Any]:
    """A Pod whose container asks for a share of a GPU."""
    amounts = {"partita.dev/gpu-memory": memory, "cpu": "1"}
    if threads:
        amounts["partita.dev/gpu-threads"] = threads
    return pod(resources={"limits": amounts}, **container)


async def create(api: Api, namespace: str, body: dict[str, Any]) -> Answer:
    """What the API server makes of a Pod."""
    return await api.post(f"{CORE}/{namespace}/pods", copy.deepcopy(body), dryRun="All")


async def made(api: Api, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    """The spec of the Pod that the API server makes."""
    return dict((await create(api, namespace, body)).ok().body["spec"])


async def test_the_limit_becomes_a_claim_behind_our_gate(api: Api, limits: str) -> None:
    spec = await made(api, limits, asking("6Gi", env=[{"name": "MINE", "value": "kept"}]))
    name = f"partita-{6 << 30}"
    assert spec["resourceClaims"] == [{"name": "partita-gpu", "resourceClaimTemplateName": name}]
    assert spec["schedulingGates"] == [{"name": "partita.dev/allocation"}]
    (container,) = spec["containers"]
    assert container["resources"] == {
        "claims": [{"name": "partita-gpu"}],
        "limits": {"cpu": "1"},
        "requests": {"cpu": "1"},
    }
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert container["env"] == [{"name": "MINE", "value": "kept"}]


@pytest.mark.parametrize(
    ("memory", "threads", "partition", "template"),
    [
        ("6Gi", "", "", "partita-6442450944"),
        ("6G", "50", "", "partita-6000000000-50"),
        ("1Mi", "1", "a.b-1", "partita-a.b-1-1048576-1"),
    ],
)
async def test_the_template_says_partition_bytes_and_threads(
    api: Api, limits: str, memory: str, threads: str, partition: str, template: str
) -> None:
    body = asking(memory, threads)
    if partition:
        body["metadata"]["annotations"] = {"partita.dev/partition": partition}
    (claim,) = (await made(api, limits, body))["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template


async def test_others_gates_claims_and_containers_stay(api: Api, limits: str) -> None:
    body = asking("6Gi")
    body["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    network = {"name": "nic", "resourceClaimName": "nic"}
    body["spec"]["resourceClaims"] = [network]
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    body["spec"]["containers"].insert(0, {"name": "proxy", "image": "example.org/proxy:1"})
    spec = await made(api, limits, body)
    gates = {gate["name"] for gate in spec["schedulingGates"]}
    assert gates == {"kueue.x-k8s.io/admission", "partita.dev/allocation"}
    assert network in spec["resourceClaims"]
    proxy, main = spec["containers"]
    assert proxy["resources"] == {}
    assert proxy["terminationMessagePolicy"] == "File"
    assert "lifecycle" not in proxy
    assert [claim["name"] for claim in main["resources"]["claims"]] == ["nic", "partita-gpu"]


SLEEP = {"sleep": {"seconds": 5}}
OWN = {"exec": {"command": ["save"]}}


@pytest.mark.parametrize(
    ("lifecycle", "found"),
    [
        (None, {"preStop": SLEEP}),
        ({"postStart": OWN}, {"postStart": OWN, "preStop": SLEEP}),
        ({"preStop": OWN}, {"preStop": OWN}),
    ],
)
async def test_mps_gets_time_before_sigterm_unless_the_container_has_a_hook(
    api: Api, limits: str, lifecycle: Any, found: Any
) -> None:
    body = asking("6Gi", **({"lifecycle": lifecycle} if lifecycle else {}))
    body["spec"]["terminationGracePeriodSeconds"] = 60
    spec = await made(api, limits, body)
    assert spec["containers"][0]["lifecycle"] == found
    added = 0 if lifecycle == {"preStop": OWN} else 7
    assert spec["terminationGracePeriodSeconds"] == 60 + added


async def test_a_pod_without_the_limit_is_left_alone(api: Api, limits: str) -> None:
    body = pod(resources={"limits": {"nvidia.com/gpu": "1"}})
    spec = await made(api, limits, body)
    assert not {"resourceClaims", "schedulingGates"} & spec.keys()
    assert spec["containers"][0]["terminationMessagePolicy"] == "File"


def with_two() -> dict[str, Any]:
    """A Pod of which two containers ask."""
    body = asking("6Gi")
    body["spec"]["containers"].append(body["spec"]["containers"][0] | {"name": "other"})
    return body


def of_an_init_container() -> dict[str, Any]:
    """A Pod of which an init container asks."""
    body = pod()
    first = asking("6Gi")["spec"]["containers"][0] | {"name": "first"}
    return body | {"spec": body["spec"] | {"initContainers": [first]}}


def with_our_claims_name() -> dict[str, Any]:
    """A Pod with both spellings."""
    body = asking("6Gi")
    claim = {"name": "partita-gpu", "resourceClaimTemplateName": "gpu-6gi"}
    body["spec"]["resourceClaims"] = [claim]
    return body


WRONG = {
    "less than 1 MiB": asking("6"),
    "more threads than there are": asking("6Gi", "101"),
    "threads alone": pod(resources={"limits": {"partita.dev/gpu-threads": "50"}}),
    "an unknown resource": pod(resources={"limits": {"partita.dev/gpu-cores": "50"}}),
    "two containers": with_two(),
    "an init container": of_an_init_container(),
    "both spellings": with_our_claims_name(),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_cannot_be_replaced_is_refused_in_words_that_help(
    api: Api, limits: str, case: str
) -> None:
    answer = await create(api, limits, WRONG[case])
    assert answer.status == 422
    assert "exactly one container with the limit partita.dev/gpu-memory" in answer.body["message"]
