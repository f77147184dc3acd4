"""What NVIDIA's container runtime does, with the fake driver; runs on the node before runc.

It gives a container the driver's files where ``NVIDIA_VISIBLE_DEVICES`` names GPUs, in the legacy
mode of https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/
docker-specialized.html: `void`, `none` or nothing brings none; ``NVIDIA_DRIVER_CAPABILITIES`` says
which of the files, `utility` being NVML's and `compute` CUDA's and MPS's. The toolkit's hook for
limits of GPU memory is `gpu.toolkit`; the cgroups that it needs, `cluster.node_cgroups`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.node_cgroups import NodeCgroups
from gpu.driver.cgroups import value_of
from gpu.toolkit import hook_command

__all__ = ["add_driver", "add_hook", "main"]

STATE = "/var/lib/fake-gpu"
"""Where the fake library and programs look for the driver's state."""

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DEVICE = "/dev/fake-nvidia"
"""Device file of a GPU, before its minor number; and of the driver, before `ctl`."""
FILES = {
    "utility": {"libnvidia-ml.so.1": LIBRARIES},
    "compute": {
        "libcuda.so.1": LIBRARIES,
        "nvidia-cuda-mps-control": "/usr/bin",
        "nvidia-cuda-mps-control.py": "/usr/bin",
        "nvidia-cuda-mps-server": "/usr/bin",
    },
}


def environment_of(config: dict[str, Any]) -> dict[str, str]:
    """Return a container's variables."""
    return dict(v.partition("=")[::2] for v in config["process"].get("env", ()))


def visible_gpus(config: dict[str, Any], state: Path) -> list[str]:
    """Return the GPUs that a container gets, as UUIDs or `all`.

    It asks for them by its variable, or has got their device files by CDI.
    """
    words = environment_of(config).get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    asked = [word for word in words if word == "all" or word.startswith("GPU-")]
    paths = [device["path"] for device in config["linux"].get("devices") or ()]
    minors = [path.removeprefix(DEVICE) for path in paths if path.startswith(DEVICE)]
    figures = [state / f"gpu-{minor}" for minor in minors if minor.isdigit()]
    return asked + [value_of(file, "uuid") for file in figures]


def add_driver(config: dict[str, Any], driver: Path, state: Path) -> None:
    """Add the driver's files to a container's OCI configuration, if it is to have them."""
    environment = environment_of(config)
    if environment.get("NVIDIA_VISIBLE_DEVICES", "void") in {"", "none", "void"}:
        return
    capabilities = environment.get("NVIDIA_DRIVER_CAPABILITIES", "utility").split(",")
    if "compute" in capabilities:
        # The fake MPS daemon's own; a job's variables are left as they are.
        config["process"]["env"].append(f"FAKE_GPU_DIR={STATE}")
    mounts = [(state, STATE, "rw")]
    for capability, files in FILES.items():
        if capability in capabilities or "all" in capabilities:
            mounts += [(driver / name, f"{folder}/{name}", "ro") for name, folder in files.items()]
    config["mounts"] += [
        {
            "type": "bind",
            "source": str(source),
            "destination": target,
            "options": ["rbind", "nosuid", "nodev", access],
        }
        for source, target, access in mounts
    ]


def add_hook(config: dict[str, Any], driver: Path, state: Path) -> None:
    """Add the toolkit's hook for limits of GPU memory, if this toolkit has it."""
    visible = [word for word in visible_gpus(config, state) if word != "all"]
    command = hook_command(visible, state)
    if command:
        variables = [f"FAKE_GPU_DIR={state}", f"LD_LIBRARY_PATH={driver}"]
        hook = {"path": command[0], "args": command, "env": variables}
        config.setdefault("hooks", {}).setdefault("createRuntime", []).append(hook)


def main(driver: Path, state: Path, arguments: list[str]) -> None:
    """Do for a container what runc does not, and go on as runc."""
    cgroups = NodeCgroups(state / "cgroup")
    name = arguments[-1]
    if "create" in arguments:
        path = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
        config = json.loads(path.read_text())
        add_driver(config, driver, state)
        add_hook(config, driver, state)
        cgroups.add(config, visible_gpus(config, state))
        path.write_text(json.dumps(config))
    elif "exec" in arguments:
        cgroups.enter(name)
    elif "delete" in arguments:
        code = subprocess.run(["runc", *arguments], check=False).returncode
        cgroups.remove(name)
        sys.exit(code)
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
