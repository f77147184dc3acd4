"""The cgroups of Pods and containers, as kubelet and runtimes name them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from agent.entries import pod_entry
from partita.agent.limits.cgroups import CgroupTree
from partita.agent.limits.job_limits import JobLimits
from partita.pods.environment import MEMORY_LIMIT, MEMORY_REQUEST

UID = "12345678-9abc-def0-1234-56789abcdef0"
OTHER = "ffffffff-9abc-def0-1234-56789abcdef0"
ID = "f" * 64


def make(root: Path, path: str, processes: str = "") -> Path:
    group = root / path
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(processes)
    return group


@pytest.mark.parametrize(
    "pod",
    [
        f"kubepods/burstable/pod{UID}",
        f"kubepods/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
    ],
    ids=["cgroupfs", "cgroupfs-guaranteed", "systemd", "systemd-guaranteed", "below-a-root"],
)
@pytest.mark.parametrize("container", [ID, f"cri-containerd-{ID}.scope", f"crio-{ID}.scope"])
def test_the_cgroup_of_a_container_is_found_by_pod_and_id(tmp_path: Path, pod: str, container: str):
    tree = CgroupTree(tmp_path)
    make(tmp_path, "system.slice/kubelet.service")
    assert tree.pod(UID) is None
    assert tree.container(UID, ID) is None
    group = make(tmp_path, f"{pod}/{container}", "7\n")
    make(tmp_path, f"{pod}/{'b' * 64}", "8\n")
    make(tmp_path, f"{pod}/crio-conmon-{ID}", "9\n")
    assert tree.pod(UID) == tmp_path / pod
    assert tree.container(UID, ID) == group
    assert tree.container(OTHER, ID) is None
    group.joinpath("cgroup.procs").unlink()
    group.rmdir()
    assert tree.container(UID, ID) is None


def test_processes_in_a_cgroup_below_the_containers_have_that_one(tmp_path: Path):
    pod = f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    make(tmp_path, f"{pod}/crio-{ID}.scope")
    below = make(tmp_path, f"{pod}/crio-{ID}.scope/container", "7\n")
    assert CgroupTree(tmp_path).container(UID, ID) == below


def test_version_and_controller_are_read_from_the_root(tmp_path: Path):
    tree = CgroupTree(tmp_path)
    assert (tree.version, tree.has_dmem) == (1, False)
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert (tree.version, tree.has_dmem) == (2, False)
    # The kernel's controller without a driver that uses it.
    (tmp_path / "dmem.capacity").write_text("drm/0000:00:02.0/vram0 8589934592\n")
    assert not tree.has_dmem
    (tmp_path / "dmem.capacity").write_text("nvidia/00000000:02:00.0/vidmem 102641958912\n")
    assert tree.has_dmem


async def test_the_cgroup_of_a_pods_sandbox_costs_few_reads_of_the_pod(tmp_path: Path):
    make(tmp_path, f"kubepods/pod{UID}/{'a' * 64}")
    entry = pod_entry("pod", "claim", pod_uid=UID)
    main = {"name": "main", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}], "containers": [main]}
    pod: dict[str, object] = {"metadata": {"uid": UID}, "spec": spec}
    kube, ledger = Mock(get=AsyncMock(return_value=pod)), Mock(allocations={entry.key: entry})
    limits = JobLimits(kube, ledger, CgroupTree(tmp_path), Mock())
    variables = {entry.key: {MEMORY_LIMIT: "2", MEMORY_REQUEST: "1"}}
    for second in range(20):
        await limits.find(variables, second)
    assert kube.get.await_count == 5
    group = make(tmp_path, f"kubepods/pod{UID}/{ID}")
    running = {"name": "main", "containerID": f"containerd://{ID}", "state": {"running": {}}}
    kube.get.return_value = {**pod, "status": {"containerStatuses": [running]}}
    await limits.find(variables, 20)
    assert limits.cgroups == (group,)
    make(tmp_path, f"kubepods/pod{UID}/{'b' * 64}")
    kube.get = Mock(return_value=asyncio.Future())
    await limits.find(variables, 21)  # which ends
