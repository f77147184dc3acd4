"""From a process to its Pod, on nodes of either cgroup version and either driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from partita.agent.attribution.processes import (
    PodsOfProcesses,
    caught_signals,
    container_id,
    pod_uid,
)

UID = "0a1b2c3d-1111-4222-8333-444455556666"
SLICE = UID.replace("-", "_")
V1 = (
    "9:name=systemd:/\n"
    "8:pids:/kubepods/burstable/pod{uid}/abc123\n"
    "4:memory:/kubepods/burstable/pod{uid}/abc123\n"
    "0::/\n"
)


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (V1.format(uid=UID), UID),
        (f"0::/kubepods/besteffort/pod{UID}/cri-containerd-abc\n", UID),
        (
            (
                "0::/kubepods.slice/kubepods-burstable.slice/"
                f"kubepods-burstable-pod{SLICE}.slice/cri-containerd-abc.scope\n"
            ),
            UID,
        ),
        (f"0::/kubepods.slice/kubepods-pod{SLICE}.slice/crio-abc.scope\n", UID),
        # cgroupsPerQOS: false, as in a test node.
        (f"4:memory:/pod{UID}/abc\n", UID),
        (f"0::/../../pod{UID}/abc\n", UID),
        # A static Pod: its UID is a hash.
        ("0::/kubepods/pod0123456789abcdef0123456789abcdef/abc\n", "0123456789abcdef" * 2),
        # A node that is a Pod itself: the inner one is it.
        (f"0::/kubepods/podffffffff-1111-4222-8333-444455556666/x/kubepods/pod{UID}/y\n", UID),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", None),
        ("0::/system.slice/docker-podman.service\n", None),
        (f"0::/kubepods/pod{UID[:-1]}/abc\n", None),
        ("garbage", None),
    ],
)
def test_the_pod_is_read_from_the_cgroup(cgroup: str, uid: str | None):
    assert pod_uid(cgroup) == uid


def test_a_process_is_read_once_and_forgotten_when_it_leaves(tmp_path: Path):
    def write(pid: int, uid: str) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{uid}/x\n")

    pods = PodsOfProcesses(tmp_path)
    write(7, UID)
    assert pods.of({7, 8}) == {7: UID, 8: None}
    other = UID.replace("0a", "ff")
    write(7, other)
    assert pods.of({7}) == {7: UID}
    pods.of(set())
    assert pods.of({7}) == {7: other}


def test_a_pid_that_was_used_anew_is_another_process(tmp_path: Path):
    def write(start: int) -> None:
        folder = tmp_path / "7"
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text("0::/user.slice\n")
        fields = " ".join(["S", *("0" for _ in range(18)), str(start), "0"])
        (folder / "stat").write_text(f"7 (a) name) {fields}\n")

    write(100)
    pods = PodsOfProcesses(tmp_path)
    pods.of({7})
    assert pods.is_same(7)
    write(101)
    assert not pods.is_same(7)
    assert not pods.is_same(8)


@pytest.mark.parametrize(
    ("status", "signals"),
    [
        ("Name:\ttrain\nSigIgn:\t0000000000004000\nSigCgt:\t0000000000004002\n", {2, 15}),
        ("SigIgn:\t0000000000004000\nSigCgt:\t0000000000000002\n", {2}),
        ("SigCgt:\t8000000000000000\n", {64}),
        ("Name:\ttrain\n", set()),
    ],
)
def test_bit_0_of_the_mask_is_signal_1(status: str, signals: set[int]):
    assert caught_signals(status) == signals


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/kubepods/besteffort/pod{UID}/{'a1' * 32}\n", "a1" * 32),
        (f"0::/kubepods-pod{SLICE}.slice/cri-containerd-{'b2' * 32}.scope\n", "b2" * 32),
        (f"0::/kubepods-pod{SLICE}.slice/crio-{'c3' * 32}.scope/container\n", "c3" * 32),
        (f"0::/docker/{'d4' * 32}/kubepods/pod{UID}/{'e5' * 32}\n", "e5" * 32),
        (f"0::/kubepods/besteffort/pod{UID}/main\n", ""),
    ],
)
def test_the_container_is_read_from_the_cgroup(cgroup: str, container: str):
    assert container_id(cgroup) == container
