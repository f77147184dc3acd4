"""The node's GPUs: fake ones, under a driver, runtime and device plugin that stand for NVIDIA's."""

from __future__ import annotations

import sys
from pathlib import Path

from cluster import nvidia_plugin, nvidia_runtime
from cluster.node import Node
from gpu import fake

__all__ = ["NodeGPUs", "write_runtime"]


def write_runtime(folder: Path) -> Path:
    """Write the command that containerd runs for runc; return it."""
    command = folder / "nvidia-container-runtime"
    tests = Path(__file__).parents[1]
    module = f"PYTHONPATH={tests} {sys.executable} -S -P -m {nvidia_runtime.__name__}"
    hook = f"env {module} {folder}/driver {folder}/gpus"
    command.write_text(
        "#!/bin/sh\n"
        f'for word in "$@"; do case "$word" in create|exec|delete) exec {hook} "$@"; esac; done\n'
        'exec runc "$@"\n'
    )
    command.chmod(0o755)
    return command


class NodeGPUs(fake.FakeGPUs):
    """Fake GPUs whose programs run in Pods.

    Their state is where the machine and the node both see it, so a test scripts them from here.
    """

    def __init__(self, node: Node) -> None:
        folder = node.slot.folder
        super().__init__(fake.build(folder / "driver"), folder / "gpus")
        self._node = node
        self.folder.mkdir(exist_ok=True)

    def plug_in(self, count: int, **figures: object) -> list[str]:
        """Give the node so many GPUs, and start what stands for NVIDIA's driver and plugin."""
        self.install_driver()
        uuids = [self.add(gpu, **figures) for gpu in range(count)]
        self.mount_cgroups()
        environment = ("env", f"FAKE_GPU_DIR={self.folder}")
        driver = [sys.executable, str(self.built.driver), str(self.folder)]
        self._node.start("gpu-driver", driver, (self.folder / "driver.sock").exists)
        plugin = [*environment, sys.executable, nvidia_plugin.__file__]
        socket = self._node.slot.folder / "kubelet" / "device-plugins" / nvidia_plugin.ENDPOINT
        self._node.start("nvidia-plugin", plugin, socket.exists)
        return uuids

    def programs(self) -> dict[int, int]:
        """Return what the programs on all GPUs have, by PID: kubelet chooses among the GPUs."""
        return {pid: memory for pid, (memory, _) in self._use_of_all().items()}

    def _use_of_all(self) -> dict[int, tuple[int, int]]:
        numbers = [int(path.name.removeprefix("gpu-")) for path in self.folder.glob("gpu-?")]
        return {pid: use for gpu in numbers for pid, use in self.use(gpu).items()}

    def figure(self, name: str, gpu: int = 0) -> str:
        """Return a figure of a GPU as it is now."""
        lines = (self.folder / f"gpu-{gpu}").read_text().splitlines()
        return dict(line.split(" ", 1) for line in lines)[name]
