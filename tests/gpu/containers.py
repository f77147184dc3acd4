"""Containers without a container runtime: a cgroup of their own, and the toolkit's hook.

A program of a container, and one that is run in it later as `kubectl exec` does, is in its cgroup
from before it starts, and so are all that it starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpu import toolkit
from gpu.fake import FakeGPUs
from support.polling import TIMEOUT, poll


@dataclass
class Container:
    """A running container."""

    gpus: FakeGPUs
    cgroup: Path
    environment: dict[str, str]

    def run(self, *steps: str, **environment: str) -> subprocess.Popen[str]:
        """Start a CUDA program in it."""
        return self.start(self.gpus.built.program, *steps, **environment)

    def start(self, *command: object, **environment: str) -> subprocess.Popen[str]:
        """Start any program in it."""
        entering = "enter-container", self.cgroup / "cgroup.procs"
        child = self.gpus.start(*entering, *command, **{**self.environment, **environment})
        cgroups = self.gpus.cgroups
        poll(lambda: cgroups.of(child.pid) == self.cgroup or child.poll() is not None)
        return child

    def remove(self) -> None:
        """Kill all its processes and remove its cgroup, as a runtime does."""
        for pid in self.gpus.cgroups.processes(self.cgroup):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.gpus.cgroups.remove(self.cgroup)


def create_container(gpus: FakeGPUs, cgroup: str, **environment: str) -> Container:
    """Create a container in a new cgroup, such as `kubepods/burstable/pod<uid>/<id>`.

    Its GPUs are those of NVIDIA_VISIBLE_DEVICES. The node must have cgroup v2: see
    `FakeGPUs.mount_cgroups`.

    Raises
    ------
    toolkit.HookError
        The toolkit's hook failed, and the cgroup is gone.
    """
    made = Container(gpus, gpus.cgroups.make(cgroup), environment)
    try:
        run_hook(made)
    except toolkit.HookError:
        gpus.cgroups.remove(made.cgroup)
        raise
    return made


def run_hook(container: Container) -> None:
    """Run the toolkit's hook, if there is one, on a process that waits for it."""
    gpus, environment = container.gpus, container.environment
    uuids = [u for u in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if u[:4] == "GPU-"]
    command = toolkit.hook_command(uuids, gpus.folder)
    if not command:
        return
    bundle = gpus.folder / "bundle"
    bundle.mkdir(exist_ok=True)
    process = {"env": [f"{name}={value}" for name, value in environment.items()]}
    (bundle / "config.json").write_text(json.dumps({"process": process}))
    waiting = container.start("sleep", "infinity")
    hook = gpus.start(*command)
    state = json.dumps({"pid": waiting.pid, "bundle": str(bundle)})
    _, said = hook.communicate(state, timeout=TIMEOUT)
    waiting.kill()
    waiting.wait()
    if hook.returncode != 0:
        raise toolkit.HookError(f"error running createRuntime hook: {said.strip()}")
