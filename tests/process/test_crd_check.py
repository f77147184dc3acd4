"""What a CRD in the cluster may lack, and how that is said."""

from __future__ import annotations

from copy import deepcopy

import pytest

from partita.kube.errors import NotFoundError
from partita.models import crd
from partita.process.crd_check import shortcoming, wait_for_crds
from partita.times import Times
from support.fake_kube import FakeKube

OURS = {definition["spec"]["names"]["kind"]: definition for definition in crd.crds()}
API = "/apis/partita.dev/v1alpha1"


def installed(kind: str) -> dict:
    """A CRD as the API server has it."""
    return deepcopy(OURS[kind])


def status_of(found: dict) -> dict:
    (version,) = found["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


@pytest.mark.parametrize("kind", OURS)
def test_what_this_release_installs_lacks_nothing(kind: str) -> None:
    assert shortcoming(OURS[kind], installed(kind)) == ""


def test_a_newer_crd_with_more_fields_and_versions_lacks_nothing() -> None:
    found = installed("GPUServer")
    status_of(found)["new"] = {"type": "string"}
    found["spec"]["versions"].append({"name": "v1beta1", "served": True, "storage": False})
    assert shortcoming(OURS["GPUServer"], found) == ""


def test_fields_that_would_be_dropped_are_named_wherever_they_stand() -> None:
    found = installed("GPUServer")
    del status_of(found)["uuid"]
    del status_of(found)["allocations"]["additionalProperties"]["properties"]["memory"]
    said = shortcoming(OURS["GPUServer"], found)
    told, _, fields = said.partition(" lacks ")
    assert told == "is older than this release and"
    assert set(fields.split(", ")) == {"status.uuid", "status.allocations.*.memory"}


def test_in_a_list_too() -> None:
    found = installed("SharedGPUJob")
    del status_of(found)["attempts"]["items"]["properties"]["outcome"]
    assert shortcoming(OURS["SharedGPUJob"], found).endswith("lacks status.attempts[].outcome")


def test_many_are_counted() -> None:
    found = installed("GPUServer")
    lacking = len(status_of(found))
    status_of(found).clear()
    assert shortcoming(OURS["GPUServer"], found).endswith(f" and {lacking - 3} more")


def test_a_map_without_a_schema_of_its_values_loses_them() -> None:
    found = installed("GPUServer")
    del status_of(found)["allocations"]["additionalProperties"]
    assert shortcoming(OURS["GPUServer"], found).endswith("lacks status.allocations.*")


def test_one_that_keeps_what_it_does_not_know_lacks_nothing() -> None:
    found = installed("GPUServer")
    (version,) = found["spec"]["versions"]
    version["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert shortcoming(OURS["GPUServer"], found) == ""


@pytest.mark.parametrize("change", [{"name": "v1alpha0"}, {"served": False}])
def test_another_version_alone_is_not_ours(change: dict) -> None:
    found = installed("GPUPartition")
    found["spec"]["versions"][0] |= change
    assert shortcoming(OURS["GPUPartition"], found) == "does not serve v1alpha1"


class Discovery(FakeKube):
    """The CRDs, and the first of these documents of discovery by path."""

    def __init__(self, *documents: dict) -> None:
        super().__init__(*OURS.values())
        self.documents = [*documents]

    async def list(self, _kind: object) -> tuple[list, str]:
        return [], ""

    async def request(self, _method: str, path: str) -> dict:
        if path not in self.documents[0]:
            raise NotFoundError(path, 404, "no")
        return self.documents[0][path]


async def test_what_discovery_does_not_list_yet_is_waited_for() -> None:
    names = sorted(definition["spec"]["names"]["plural"] for definition in OURS.values())
    group = {"/apis": {"groups": [{"versions": [{"groupVersion": API.removeprefix("/apis/")}]}]}}
    some, every = ({API: {"resources": [{"name": n} for n in names[:to]]}} for to in (2, None))
    kube = Discovery({"/apis": {"groups": []}} | every, group, group | some, group | every)
    told: list[str] = []

    def tell(said: str) -> None:
        told.append(said)
        kube.documents.pop(0)

    await wait_for_crds(kube, tell, Times(check_crds=0.0))  # type: ignore[arg-type]
    missing = (", ".join(names), ", ".join(names), ", ".join(names[2:]))
    assert told == [f"the API server does not list {them} under {API} yet" for them in missing]
