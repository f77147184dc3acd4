"""What a CRD in the cluster may lack, and how that is said."""

from __future__ import annotations

from copy import deepcopy

import pytest

from partita.models import crd
from partita.process.crd_check import shortcoming

OURS = {definition["spec"]["names"]["kind"]: definition for definition in crd.crds()}
SERVED = {"conditions": [{"type": "Established", "status": "True"}]}


def installed(kind: str) -> dict:
    """A CRD as the API server has it."""
    return deepcopy(OURS[kind]) | {"status": deepcopy(SERVED)}


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


def test_one_that_the_api_server_has_not_taken_up_is_waited_for() -> None:
    found = installed("GPUPartition")
    found["status"]["conditions"][0]["status"] = "False"
    assert shortcoming(OURS["GPUPartition"], found) == "is not served yet"
