"""KAI's part in the comparison of GPU sharing: its folder, its nodes, and what its Pods were given."""

import argparse
import asyncio

import pytest

from bench.peers.sharing_demand import Share
from bench.peers.sharing_kai import kai_folder, shares_of
from bench.peers.sharing_kai_nodes import GPU_ANNOTATION, RESERVATIONS, KaiNodes

RUNNING = {"metadata": {"name": "pod-0"}, "spec": {"nodeName": "node-0"}}
METADATA = {"namespace": "crowd", "name": "pod-0", "uid": "7"}
GIVEN = {
    "metadata": {"ownerReferences": [{"name": "pod-0"}]},
    "data": {"NVIDIA_VISIBLE_DEVICES": "GPU-3", "GPU_PORTION": "0.10"},
}


def test_a_folder_says_what_it_lacks(tmp_path):
    (tmp_path / "scheduler").touch(mode=0o755)
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"lacks binder, podgrouper, crds/\*\.yaml"
    ):
        kai_folder(str(tmp_path))


def test_a_complete_folder_is_taken(tmp_path):
    for name in ("scheduler", "binder", "podgrouper"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "queues.yaml").touch()
    assert kai_folder(str(tmp_path)) == tmp_path


def test_a_pod_has_the_gpu_and_the_part_that_its_config_map_names():
    empty = {"metadata": {"ownerReferences": [{"name": "pod-0"}]}}
    assert shares_of([RUNNING], [GIVEN, empty]) == {"pod-0": Share("GPU-3", 8, 10)}


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"name": "pod-0"}, "spec": {}},
        {
            "metadata": {"name": "pod-0", "deletionTimestamp": "2026-11-24T16:00:00Z"},
            "spec": {"nodeName": "node-0"},
        },
    ],
    ids=["not bound", "being deleted"],
)
def test_a_pod_that_does_not_run_has_no_share(pod):
    assert shares_of([pod], [GIVEN]) == {}


async def test_each_reservation_has_a_gpu_of_its_own_as_long_as_there_are_any():
    api = await seen(("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), gpus=2)
    assert api.gpus == {"a": "GPU-0", "b": "GPU-1"}
    assert api.phases == {"a": "Running", "b": "Running", "c": "Failed"}


async def test_the_gpu_of_a_reservation_that_ended_is_given_again():
    api = await seen(("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b"), gpus=1)
    assert api.gpus == {"a": "GPU-0", "b": "GPU-0"}


async def test_a_pod_of_a_user_that_is_being_deleted_ends_once():
    api = Api()
    deleting = {"metadata": {**METADATA, "deletionTimestamp": "2026-11-24T16:00:00Z"}, "spec": {}}
    async with asyncio.TaskGroup() as group:
        nodes = KaiNodes(api, 1, group, lambda *_: None)
        for _ in range(2):
            nodes.see("MODIFIED", deleting)
    assert api.deleted == ["/api/v1/namespaces/crowd/pods/pod-0?gracePeriodSeconds=0"]


async def seen(*events, gpus):
    """Tell nodes of reservation Pods; return the API server that they wrote to."""
    api = Api()
    async with asyncio.TaskGroup() as group:
        nodes = KaiNodes(api, gpus, group, lambda *_: pytest.fail("no Pod of a user"))
        for kind, name in events:
            meta = {"namespace": RESERVATIONS, "name": name, "uid": name}
            nodes.see(kind, {"metadata": meta, "spec": {"nodeName": "node-0"}})
    return api


class Api:
    """Notes what is written to Pods."""

    def __init__(self):
        self.gpus, self.phases, self.deleted = {}, {}, []

    async def get(self, _):
        return {}

    async def delete(self, path):
        self.deleted.append(path)

    async def patch(self, path, body):
        name = path.removesuffix("/status").rpartition("/")[2]
        if path.endswith("/status"):
            self.phases[name] = body["status"]["phase"]
        else:
            self.gpus[name] = body["metadata"]["annotations"][GPU_ANNOTATION]
