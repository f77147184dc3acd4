"""The classes and slices of a partition."""

from __future__ import annotations

from typing import Any

import pytest

from partita.models import GPUPartition, GPUServer
from partita.partitions.devices import PROBE_SLICE, desired_classes, desired_slices, keeps_taints
from support.builders import partition_body, server_body


def partition(**spec: Any) -> GPUPartition:
    return GPUPartition.parse(partition_body(**spec))


def expressions(found: dict[str, Any]) -> set[str]:
    return {one["spec"]["selectors"][0]["cel"]["expression"] for one in found.values()}


SLICES = [{"name": "small", "memory": "4Gi"}, {"name": "large", "memory": "16Gi"}]


def test_a_partition_has_a_class_and_each_fixed_slice_one_more():
    assert desired_classes(partition(), tainted=True).keys() == {"shared.gpu.partita.dev"}
    assert desired_classes(partition(slices=SLICES), tainted=True).keys() == {
        "shared.gpu.partita.dev",
        "small.shared.gpu.partita.dev",
        "large.shared.gpu.partita.dev",
    }


def test_a_class_selects_the_devices_of_its_partition_that_the_scheduler_leaves_alone():
    selectors = expressions(desired_classes(partition(slices=SLICES), tainted=True))
    driver = 'device.driver == "gpu.partita.dev"'
    of_partition = 'device.attributes["gpu.partita.dev"].partition == "shared"'
    assert selectors == {f"{driver} && {of_partition}"}


def test_without_taints_a_class_selects_nothing():
    assert expressions(desired_classes(partition(slices=SLICES), tainted=False)) == {"false"}


def test_a_ready_gpu_is_one_device_of_a_pool_of_its_own():
    server = GPUServer.parse(server_body())
    (name, found), *others = desired_slices(partition(), [server]).items()
    assert not others
    assert name == "shared-0.gpu.partita.dev"
    assert found["spec"]["nodeName"] == server.status.node
    assert found["spec"]["pool"]["name"] == "shared-0"
    (device,) = found["spec"]["devices"]
    assert device["allowMultipleAllocations"] is True
    assert device["attributes"]["uuid"] == {"string": server.status.uuid}
    assert device["taints"] == [{"key": "partita.dev/allocator", "effect": "NoSchedule"}]
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("GPUServer", server.metadata.uid)


@pytest.mark.parametrize(("reserve", "memory"), [(0, "40Gi"), (10, "36Gi")])
def test_its_capacity_is_what_can_be_allocated(reserve: int, memory: str):
    server = GPUServer.parse(server_body(status={"memory": "40Gi"}))
    shared = partition(sharing={"memoryReservePercent": reserve})
    (found,) = desired_slices(shared, [server]).values()
    assert found["spec"]["devices"][0]["capacity"] == {
        "memory": {"value": memory},
        "threads": {"value": "100"},
    }


def test_a_gpu_that_is_not_ready_or_goes_has_no_slice():
    unready = GPUServer.parse(server_body(conditions={"Ready": "False"}))
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    going = GPUServer.parse(server_body("shared-1", metadata=deleted))
    assert desired_slices(partition(), [unready, going]) == {}


def test_what_the_api_server_keeps_of_a_slice_says_whether_it_knows_taints():
    assert keeps_taints(PROBE_SLICE)
    (device,) = PROBE_SLICE["spec"]["devices"]
    dropped = {**PROBE_SLICE["spec"], "devices": [{"name": device["name"]}]}
    assert not keeps_taints({**PROBE_SLICE, "spec": dropped})
