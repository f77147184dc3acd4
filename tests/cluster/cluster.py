"""A cluster of one node on this machine: a control plane beside it, containerd and kubelet in it.

Needs root. Nothing is translated or faked but what Pods use as their GPU.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apiserver.binaries import CONTROL_PLANE, NODE
from apiserver.build import cached
from cluster.gpus import write_runtime
from cluster.images import write_busybox
from cluster.node import Node
from cluster.plane import NODE_NAME, ClusterControlPlane
from cluster.preflight import plugin_folder
from cluster.slots import Slot, taken_slot
from support.polling import TIMEOUT

__all__ = ["PAUSE", "Cluster", "running_cluster"]

PAUSE = "localhost/pause:1"
"""What holds a Pod's namespaces: busybox, asleep."""


LOG = ("logs", "--all-containers", "--tail=15")
OPERATOR = ("--namespace=partita-system", "--selector=app.kubernetes.io/component=operator")
AGENTS = ("--namespace=partita-servers", "--selector=partita.dev/server")


class Cluster:
    """A running cluster.

    Attributes
    ----------
    slot
        Its place on the machine.
    node
        Where its Pods run.
    plane
        Its control plane; ``plane.url``, ``plane.token`` and ``plane.certificate`` lead to it.
    """

    def __init__(
        self, slot: Slot, node: Node, plane: ClusterControlPlane, assets: Path, binaries: Path
    ) -> None:
        self.slot = slot
        self.node = node
        self.plane = plane
        self._assets = assets
        self._binaries = binaries
        self._containerd = slot.folder / "containerd.sock"

    @property
    def device_plugins(self) -> Path:
        """Where the machine sees the node's ``/var/lib/kubelet/device-plugins``."""
        return self.slot.folder / "kubelet" / "device-plugins"

    @property
    def cdi(self) -> Path:
        """Where the machine sees the node's ``/var/run/cdi``, which containerd reads."""
        return self.run / "cdi"

    @property
    def run(self) -> Path:
        """Where the machine sees the node's ``/run``."""
        return self.slot.folder / "run"

    def load(self, archive: Path) -> None:
        """Give the node the images of an archive, for Pods that never pull."""
        self.ctr("images", "import", "--no-unpack", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run containerd's own client on the node's containers."""
        ctr = [str(self._binaries / "ctr"), f"--address={self._containerd}", "-n", "k8s.io"]
        return self.node.run(*ctr, *arguments)

    def containers(self, namespace: str, name: str) -> list[str]:
        """Return the IDs of the containers of this name, as containerd knows them."""
        labels = {"pod.namespace": namespace, "container.name": name}
        wanted = ",".join(f'labels."io.kubernetes.{key}"=={it}' for key, it in labels.items())
        return self.ctr("containers", "list", "--quiet", wanted).split()

    def failure_report(self) -> list[tuple[str, str]]:
        """Return what tells most about a failure: titles and texts."""
        kubectl = [str(self._assets / "kubectl"), f"--kubeconfig={self.plane.kubeconfig}"]
        asked = {
            "objects": ["get", "gpart,gsrv,sgj,resourceclaims,pods", "--all-namespaces"],
            "the end of the operator's log": [*LOG, *OPERATOR],
            "the end of the agents' logs": [*LOG, *AGENTS],
        }
        sections = []
        for title, arguments in asked.items():
            done = subprocess.run(
                [*kubectl, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT
            )
            sections.append((title, done.stdout or done.stderr))
        servers = ("kubelet", "containerd")
        return sections + [(f"the end of {name}'s log", self.node.tail(name)) for name in servers]

    def start_containerd(self) -> None:
        """Write containerd's configuration and start it."""
        folder = self.slot.folder
        network = folder / "cni"
        network.mkdir()
        (network / "10-partita.conflist").write_text(json.dumps(_network(self.slot)))
        config = folder / "containerd.toml"
        config.write_text(_containerd_config(folder, self._containerd, network))
        self.node.start(
            "containerd",
            [str(self._binaries / "containerd"), "--config", str(config)],
            self._containerd_answers,
        )

    def start_kubelet(self) -> None:
        """Write the kubelet's configuration and start it."""
        folder = self.slot.folder
        kubeconfig = folder / "kubelet.kubeconfig"
        kubeconfig.write_text(json.dumps(self.plane.kubeconfig_of(self.plane.node_token)))
        config = folder / "kubelet.json"
        config.write_text(json.dumps(_kubelet_config(self.slot, self._containerd)))
        self.node.start(
            "kubelet",
            [
                str(self._binaries / "kubelet"),
                f"--config={config}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={self.slot.node}",
            ],
            (self.device_plugins / "kubelet.sock").exists,
        )

    def restart(self, server: str) -> None:
        """Kill containerd or kubelet and start it again; Pods go on under containerd's shims."""
        self.node.stop(server, how=signal.SIGKILL)
        if server == "kubelet":  # it makes the socket anew
            (self.device_plugins / "kubelet.sock").unlink(missing_ok=True)
        self.node.start_again(server)

    def execute(self, container: str, *command: str) -> str:
        """Run a command in a Pod's container, named by the ``containerID`` of its status."""
        identifier = container.removeprefix("containerd://")
        return self.ctr("tasks", "exec", "--exec-id", secrets.token_hex(4), identifier, *command)

    def _containerd_answers(self) -> bool:
        if not self._containerd.exists():
            return False
        try:
            self.ctr("version")
        except RuntimeError:
            return False
        return True


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Run a cluster; when this ends, or the process does, so does all of it.

    Its node may not be ready yet: see `NODE_NAME`'s condition.
    """
    assets, binaries = cached(), cached(what=NODE)
    if assets is None or binaries is None:
        missing = CONTROL_PLANE if assets is None else NODE
        raise RuntimeError(f"The {missing.title} is not built: run `make test-cluster`.")
    with taken_slot() as slot, Node(slot) as node, ClusterControlPlane(assets, slot) as plane:
        slot.make_cgroup()
        cluster = Cluster(slot, node, plane, assets, binaries)
        cluster.start_containerd()
        pause = slot.folder / "pause.tar"
        write_busybox(pause, PAUSE, ["/usr/bin/sleep", "2147483647"])
        cluster.load(pause)
        cluster.start_kubelet()
        try:
            yield cluster
        finally:
            # The API server, when it is stopped, waits for its clients to leave.
            node.end()


def _containerd_config(folder: Path, socket: Path, network: Path) -> str:
    return f"""
version = 3
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  # A container of CI may not lower the score that it was given.
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "nvidia"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
      BinaryName = "{write_runtime(folder)}"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugin_folder()}"]
  conf_dir = "{network}"
"""


def _network(slot: Slot) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "partita",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": slot.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": str(slot.folder / "addresses"),
                },
            }
        ],
    }


def _kubelet_config(slot: Slot, containerd: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": slot.node,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{slot.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{containerd}",
        "resolvConf": "",
        # However full this machine's disk is: nothing is evicted, no image is removed for room.
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        # What changes on the node is told at once, not within 10 s.
        "nodeStatusUpdateFrequency": "1s",
        "shutdownGracePeriod": "0s",
        # A program that tests kill again and again starts anew as soon as one that failed once.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }
