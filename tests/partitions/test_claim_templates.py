"""Templates exist while Pods name them, and for the partition that such a Pod means."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from partita.kube.client import CLAIM_TEMPLATES, Kind
from partita.kube.errors import AlreadyExistsError, NotFoundError, UnavailableError
from partita.kube.turns import Turns
from partita.models import GPUPartition
from partita.models.template_name import TemplateName
from partita.partitions.claim_templates import (
    MOST,
    ClaimTemplates,
    build_claim_template,
    partition_for,
)
from partita.store.state import State
from partita.times import Times
from support.builders import a_state, namespace_body, partition_body, take
from support.claims import claiming_pod_body
from support.meanwhile import running
from support.polling import until

SIX = TemplateName("", 6 << 30)
VISION = {"allowedNamespaces": {"matchLabels": {"team": "vision"}}}


class Kube:
    """Templates by name."""

    def __init__(self) -> None:
        self.templates: dict[str, dict[str, Any]] = {}
        self.lists = 0

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        assert kind is CLAIM_TEMPLATES
        name = body["metadata"]["name"]
        if name in self.templates:
            raise AlreadyExistsError("create", 409, "there")
        meta = {**body["metadata"], "uid": f"uid-{name}"}
        self.templates[name] = {**body, "metadata": meta}
        return body

    async def list(self, kind: Kind, **by: str) -> tuple[list[dict[str, Any]], str]:
        assert kind is CLAIM_TEMPLATES
        if named := by.get("field_selector", "").removeprefix("metadata.name="):
            return [t for name, t in self.templates.items() if name == named], "1"
        self.lists += 1
        labelled = [t for t in self.templates.values() if t["metadata"].get("labels")]
        return labelled, "1"

    async def delete(self, _kind: Kind, name: str, _namespace: str, *, uid: str) -> None:
        if self.templates[name]["metadata"]["uid"] != uid:
            raise NotFoundError("delete", 404, "no")
        del self.templates[name]


class Notes:
    """Events on Pods."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def warn(self, about: Any, reason: str, message: str) -> None:
        self.said[about.name] = f"{reason}: {message}"


def waiting_pod(
    name: str = "serve-1", template: TemplateName | str = SIX, namespace: str = "team-a"
) -> dict[str, Any]:
    """A Pod for which there is no claim yet."""
    entry = {"name": "gpu", "resourceClaimTemplateName": str(template)}
    status: dict[str, Any] = {"resourceClaimStatuses": []}
    return claiming_pod_body(name, namespace=namespace, resourceClaims=[entry], status=status)


class Cluster:
    """Templates as they are kept for a state."""

    def __init__(self, *bodies: dict[str, Any], unused_template: float = 3600.0) -> None:
        self.state = a_state(*bodies)
        self.kube, self.notes = Kube(), Notes()
        self.kube.times = Times(check_templates=0.1, unused_template=unused_template)
        self.kube.turns = Turns()
        self.templates = ClaimTemplates(self.kube, self.state, self.notes)  # type: ignore[arg-type]

    def pod(self, body: dict[str, Any], *, deleted: bool = False) -> None:
        self.state.apply_pod(body, deleted=deleted)
        self.templates.pod_changed(body["metadata"]["uid"])

    async def checked(self) -> None:
        """Wait until all was looked at once more."""
        before = self.kube.lists
        await until(lambda: self.kube.lists > before + 1)


async def test_a_pod_that_names_a_template_gets_it():
    cluster = Cluster(partition_body())
    async with running(cluster.templates.run()):
        cluster.pod(waiting_pod())
        await until(lambda: set(cluster.kube.templates) == {str(SIX)})
    assert cluster.notes.said == {}


async def test_the_template_of_a_user_is_left_alone():
    cluster = Cluster(partition_body(), unused_template=0.0)
    own = {"metadata": {"name": str(SIX), "namespace": "team-a", "uid": "u"}}
    cluster.kube.templates[str(SIX)] = own
    async with running(cluster.templates.run()):
        cluster.pod(waiting_pod())
        await cluster.checked()
    assert cluster.kube.templates == {str(SIX): own}


async def test_each_pod_is_told_why_there_is_no_template_and_gets_it_later():
    cluster = Cluster()
    async with running(cluster.templates.run()):
        cluster.pod(waiting_pod("serve-1"))
        cluster.pod(waiting_pod("serve-2"))
        await until(lambda: set(cluster.notes.said) == {"serve-1", "serve-2"})
        assert "NoClaimTemplate: no GPUPartition serves" in cluster.notes.said["serve-1"]
        take(cluster.state, partition_body())
        await until(lambda: str(SIX) in cluster.kube.templates)


async def test_a_name_that_cannot_be_read_is_told_unless_a_user_made_such_a_template():
    cluster = Cluster(partition_body())
    cluster.kube.templates["partita-mine"] = {"metadata": {"name": "partita-mine"}}
    async with running(cluster.templates.run()):
        cluster.pod(waiting_pod("serve-1", "partita-mine"))
        cluster.pod(waiting_pod("serve-2", "partita-shared-6144"))
        await until(lambda: "serve-2" in cluster.notes.said)
        cluster.pod(waiting_pod("serve-3", "partita-6gi"))
        await until(lambda: "partita-6gi" in cluster.kube.templates)
    assert cluster.notes.said.keys() == {"serve-2"}
    assert "such as partita-shared-6144mi" in cluster.notes.said["serve-2"]


async def test_a_namespace_gets_templates_of_a_limited_number_of_sizes():
    cluster = Cluster(partition_body())
    for number in range(MOST + 20):
        cluster.pod(waiting_pod(f"many-{number}", TemplateName("", (number + 7) << 30)))
    async with running(cluster.templates.run()):
        await until(lambda: "NoClaimTemplate" in cluster.notes.said.get(f"many-{MOST + 19}", ""))
        await cluster.checked()
    assert len(cluster.notes.said) == 20, "a Pod whose template exists is told nothing"
    assert len(cluster.kube.templates) == MOST
    assert "has 100 ResourceClaimTemplates" in cluster.notes.said[f"many-{MOST + 19}"]


async def test_a_slow_webhook_of_one_namespace_and_a_slow_list_delay_no_other():
    cluster = Cluster(partition_body(), namespace_body("team-b"))
    create, never = cluster.kube.create, asyncio.Event()

    async def slow(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["namespace"] == "team-a":
            await never.wait()
        return await create(kind, body)

    cluster.kube.create = slow  # type: ignore[method-assign]
    cluster.kube.list = lambda *_, **__: never.wait()  # type: ignore[method-assign, assignment]
    async with running(cluster.templates.run()):
        cluster.pod(waiting_pod())
        cluster.pod(waiting_pod("other", namespace="team-b"))
        await until(lambda: str(SIX) in cluster.kube.templates)


@pytest.mark.parametrize(("unused", "named", "kept"), [
    (0.0, True, True), (3600.0, False, True), (0.0, False, False)])  # fmt: skip
async def test_a_template_that_no_pod_names_goes_after_a_while(
    *, unused: float, named: bool, kept: bool
):
    cluster = Cluster(partition_body(), unused_template=unused)
    body = waiting_pod()
    async with running(cluster.templates.run()):
        cluster.pod(body)
        await until(lambda: str(SIX) in cluster.kube.templates)
        if not named:
            cluster.pod(body, deleted=True)
        await cluster.checked()
        assert (str(SIX) in cluster.kube.templates) is kept


async def test_a_template_of_another_partition_than_is_meant_now_goes():
    cluster = Cluster(partition_body())
    async with running(cluster.templates.run()):
        cluster.pod(waiting_pod())
        await until(lambda: str(SIX) in cluster.kube.templates)
        take(cluster.state, partition_body("other"))
        await until(lambda: str(SIX) not in cluster.kube.templates)
        await until(lambda: "serve-1" in cluster.notes.said)
        assert "several partitions (other, shared)" in cluster.notes.said["serve-1"]


async def test_what_somebody_else_has_labelled_and_a_refused_deletion_end_nothing():
    cluster = Cluster(partition_body())
    meta = {"name": str(SIX), "namespace": "team-a", "uid": "u", "labels": {"its": "own"}}
    cluster.kube.templates[str(SIX)] = {"metadata": meta, "spec": {"spec": {}}}
    refused = AsyncMock(side_effect=UnavailableError("delete", 503, "no"))
    cluster.kube.delete = refused  # type: ignore[method-assign]
    async with running(cluster.templates.run()):
        await until(lambda: refused.await_count > 1)


def means(name: TemplateName, *bodies: dict[str, Any]) -> str:
    """The partition that a name means, or what is said."""
    state: State = a_state(namespace_body("team-a", team="nlp"), *bodies)
    found = partition_for(name, "team-a", state)
    return found if isinstance(found, str) else found.metadata.name


def test_a_name_means_the_partition_in_it_or_the_only_one_of_the_namespace():
    assert means(SIX, partition_body()) == "shared"
    assert means(SIX, partition_body(), partition_body("vision", **VISION)) == "shared"
    assert "no GPUPartition serves namespace team-a" in means(SIX, partition_body(**VISION))
    said = means(SIX, partition_body(), partition_body("other"))
    assert "(other, shared): write one in the annotation partita.dev/partition" in said
    named = TemplateName("other", 6 << 30)
    assert means(named, partition_body(), partition_body("other")) == "other"
    assert "GPUPartition other does not exist (existing: shared)" in means(named, partition_body())


def test_a_template_asks_for_the_amounts_in_its_name_in_both_ways():
    partition = GPUPartition.parse(partition_body())
    name = TemplateName("shared", 6 << 30, 50)
    body = build_claim_template(name, partition, "team-a")
    assert body["metadata"]["name"] == "partita-shared-6442450944-50"
    (request,) = body["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "shared.gpu.partita.dev",
        "capacity": {"requests": {"memory": "6442450944", "threads": "50"}},
    }
    assert body["spec"]["metadata"]["annotations"] == {
        "partita.dev/gpu-memory": "6442450944",
        "partita.dev/gpu-threads": "50",
    }
