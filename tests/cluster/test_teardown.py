"""Nothing of a cluster is left on the machine, whichever way its owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster import preflight
from cluster.cluster import Cluster
from cluster.slots import NUMBERS, Slot, hierarchies, taken_slot
from support.polling import holds_within

OWNER = """
import asyncio, sys
from cluster.cluster import PAUSE, running_cluster
from cluster.pods import phase, restricted_pod
from support.clusters import ApiServer

async def run_a_pod(plane):
    server = ApiServer.of(plane)
    async with server.session() as session:
        api = server.api(session)
        await api.until("/api/v1/namespaces/default/serviceaccounts/default", bool)
        pod = restricted_pod("lasting", PAUSE, ["sleep", "3600"])
        (await api.post("/api/v1/namespaces/default/pods", pod)).ok()
        path = "/api/v1/namespaces/default/pods/lasting"
        await api.until(path, lambda pod: phase(pod) == "Running")

with running_cluster() as cluster:
    asyncio.run(run_a_pod(cluster.plane))
    print(cluster.slot.number, cluster.node.pid, flush=True)
    sys.stdin.read()
"""

END_SECONDS = 30


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """A process that has a cluster with a Pod, until its stdin ends."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as process:
        yield process
        process.kill()


def what_it_has(process: subprocess.Popen[str]) -> tuple[Slot, set[int]]:
    """Wait until its Pod runs; return its place, and all the processes of its node."""
    assert process.stdout is not None
    number, pid = map(int, process.stdout.readline().split())
    inside = family_of(pid)
    commands = {command_of(pid) for pid in inside}
    assert {"containerd", "kubelet", "containerd-shim-runc-v2", "sleep"} <= commands
    return Slot(number), inside


def family_of(first: int) -> set[int]:
    """Return a process and all that descend from it, its Pods' own namespaces included."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parts[2])] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    family = {first}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def command_of(pid: int) -> str:
    try:
        return Path(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]).name
    except OSError:
        return ""


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and command_of(pid)}


def on_the_machine() -> dict[str, list[str]]:
    """Return what the machine has beside processes that a cluster might leave behind.

    Without the links of places: other clusters may come and go.
    """
    links = {path.name for path in Path("/sys/class/net").iterdir()}
    return {
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
        "links": sorted(links - {Slot(number).link for number in NUMBERS}),
        "settings": [
            Path("/proc/sys", name).read_text()
            for name in ("vm/overcommit_memory", "kernel/panic", "net/ipv4/ip_forward")
        ],
        "places": [
            str(place)
            for place in map(Path, ("/var/lib/kubelet", "/run/partita", "/run/netns", "/etc/cni"))
            if place.exists()
        ],
    }


def of_its_own(slot: Slot) -> list[Path]:
    """Return the place's cgroups and link that are there."""
    own = [*(h / slot.cgroup for h in hierarchies()), Path("/sys/class/net", slot.link)]
    return [path for path in own if path.exists()]


def test_nothing_is_left_when_a_cluster_ends(owner: subprocess.Popen[str]):
    before = on_the_machine()
    slot, inside = what_it_has(owner)
    assert on_the_machine()["mounts"] == before["mounts"], "the node's are its own"
    assert owner.stdin is not None
    owner.stdin.close()
    assert owner.wait(END_SECONDS) == 0
    assert alive(inside) == set()
    assert on_the_machine() == before
    assert of_its_own(slot) == []
    assert not slot.folder.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_nothing_runs_on_when_the_owner_is_killed_and_the_next_one_clears_the_rest(
    owner: subprocess.Popen[str], how: signal.Signals
):
    before = on_the_machine()
    slot, inside = what_it_has(owner)
    owner.send_signal(how)
    owner.wait()
    assert holds_within(lambda: not alive(inside), END_SECONDS), alive(inside)
    assert holds_within(lambda: on_the_machine() == before, END_SECONDS)
    with taken_slot():
        assert of_its_own(slot) == []
        assert not slot.folder.exists() or not any(slot.folder.iterdir())


def test_a_cluster_that_runs_is_left_alone_by_the_next_one(cluster: Cluster):
    with taken_slot() as other:
        assert other.number != cluster.slot.number
    assert cluster.node.runs("kubelet")


def test_no_more_clusters_run_than_there_are_places(cluster: Cluster):
    """However many others run at the moment: one place is this cluster's."""

    def take_all() -> None:
        with ExitStack() as places:
            for _ in NUMBERS:
                places.enter_context(taken_slot())

    with pytest.raises(RuntimeError, match="4 test clusters run"):
        take_all()


def test_this_machine_has_all_that_is_needed():
    assert preflight.missing() == []


def test_what_a_machine_lacks_is_named_with_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for tool in ("true", "unshare"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path))
    (lacking,) = preflight.missing(plugin_folders=(tmp_path,))
    _, _, command = lacking.partition("apt-get install --no-install-recommends ")
    assert {"runc", "buildah", "debootstrap", "busybox-static", "iproute2"} <= set(command.split())
    assert "containernetworking-plugins" in command.split()
