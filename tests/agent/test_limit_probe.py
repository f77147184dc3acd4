"""How long the agent waits for a probe Pod, and when it tries again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice
from partita.agent.limits.cgroups import CgroupTree
from partita.agent.limits.decision import RETRY_AFTER, Hook, ProbeResult
from partita.agent.limits.probe import DEADLINE, LimitProbe
from partita.kube.client import Kube
from partita.kube.errors import NotFoundError
from partita.models import GPUServer
from partita.models.quantities import MEBI


def server(**spec: str) -> GPUServer:
    meta = {"name": "gpus-0", "uid": "uid-0"}
    return GPUServer.parse({"metadata": meta, "spec": {"partition": "gpus", **spec}})


SERVER = server()
BUSY = SERVER.model_copy(
    update={"status": SERVER.status.model_copy(update={"allocations": {"uid": None}})}
)
GPU = cast("NVMLDevice", None)
IDENTITY = GPUIdentity("GPU-0", "", "", 40000 * MEBI, 0, 0, None, mig=False, vgpu=False, driver="")


class Pods:
    """An API server with the probe Pod, or without one."""

    def __init__(self) -> None:
        self.pod: dict[str, Any] | None = None
        self.reads = 0

    async def get(self, *_: object) -> dict[str, Any]:
        self.reads += 1
        if self.pod is None:
            raise NotFoundError("get", 404, "no")
        return self.pod


@pytest.fixture
def pods() -> Pods:
    return Pods()


def probe(pods: Pods, folder: Path, hook: Hook = "Unknown") -> LimitProbe:
    made = LimitProbe(cast("Kube", pods), IDENTITY, "partita-system", CgroupTree(folder))
    made.show(ProbeResult(hook), 0.0)
    return made


async def test_a_probe_pod_that_cannot_start_now_is_waited_for(pods: Pods, tmp_path: Path):
    """The GPU is drained, then its node is cordoned, then the GPU takes no containers."""
    made, spec = probe(pods, tmp_path), {}
    drained = server(drainSince="2026-01-01T00:00:00Z")
    owner = {"uid": "uid-0", "controller": True}
    pending = {"metadata": {"uid": "pod", "ownerReferences": [owner]}, "spec": spec}
    for turn, pod, node, hook in (
        (0, None, "", "Unknown"),
        (1, None, "", "Unknown"),
        (2, pending, "", "Unknown"),
        (3, pending, "", "Unknown"),
        (4, pending, "node-a", "Unknown"),
        (4.9, pending, "node-a", "Unknown"),
        (5, pending, "no", "Unknown"),
        (6, pending, "node-a", "Unknown"),
        (7, pending, "node-a", "Failed"),
    ):
        pods.pod, spec["nodeName"] = pod, node
        gpu, waiting = SERVER if pod else drained, node != "no"
        await made.check(GPU, gpu, turn * DEADLINE, waiting=waiting)
        assert made.result.hook == hook
    assert "gpus-0-probe" in made.result.detail


async def test_limits_that_did_not_work_are_tried_again_after_a_pause(pods: Pods, tmp_path: Path):
    made, gpu = probe(pods, tmp_path, "NotApplied"), SERVER
    due = [RETRY_AFTER, RETRY_AFTER + DEADLINE + RETRY_AFTER]
    for at in due:
        await made.check(GPU, gpu, at - 1, waiting=True)
        assert (made.hook, pods.reads) == (made.result.hook, 2 * due.index(at))
        before = made.result
        await made.check(GPU, gpu, at, waiting=True)
        assert (made.hook, made.result) == ("Unknown", before)  # which holds until then
        await made.check(GPU, gpu, at + DEADLINE, waiting=True)
        assert made.hook == made.result.hook == "Failed"


async def test_limits_are_not_tried_again_while_jobs_have_others(pods: Pods, tmp_path: Path):
    made, at = probe(pods, tmp_path, "Failed"), RETRY_AFTER
    for gpu, hook in ((BUSY, "Failed"), (SERVER, "Unknown"), (BUSY, "Failed"), (SERVER, "Failed")):
        await made.check(GPU, gpu, at, waiting=True)
        assert made.hook == hook
    await made.check(GPU, SERVER, 2 * at, waiting=True)
    assert made.hook == "Unknown"


async def test_a_pod_of_somebody_else_shows_nothing(pods: Pods, tmp_path: Path):
    waiting = {"reason": "CreateContainerError", "message": "hook: exit status 1"}
    status = {"containerStatuses": [{"name": "probe", "state": {"waiting": waiting}}]}
    owner = {"uid": "uid-of-another", "controller": True}
    meta = {"uid": "pod", "ownerReferences": [owner]}
    pods.pod = {"metadata": meta, "spec": {"containers": []}, "status": status}
    made = probe(pods, tmp_path)
    await made.check(GPU, SERVER, 0.0, waiting=True)
    assert made.result.hook == "Unknown"
    owner["uid"] = "uid-0"
    pods.pod["status"] = {}
    await made.check(GPU, SERVER, 0.5, waiting=True)
    assert made.result.hook == "Unknown"  # although the GPUServer does not name its GPU yet
    pods.pod["status"] = status
    await made.check(GPU, SERVER, 1.0, waiting=True)
    assert made.result.hook == "Failed"
    assert "exit status 1" in made.result.detail
