"""The container toolkit's hook that gives a container's cgroup its limits of GPU memory.

    nvidia-ctk hook apply-cuda-memory-limits --gpu-id UUID...

It runs as OCI hook `createRuntime`: the container's process is there, its program is not started,
and a failure fails the container's creation. The hook and its errors are those of
NVIDIA/nvidia-container-toolkit, cmd/nvidia-cdi-hook/cudamemorylimits (from 1.20.1 on); which GPUs
it is called for, of pkg/nvcdi/cuda-memory-limits.go. A test says by the file `toolkit` in
FAKE_GPU_DIR which toolkit there is:

    hook present            1.20.1 or newer; also without the file
    hook missing            an older one, which knows nothing of the variables
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

REQUEST = "NVIDIA_GPU_MEMORY_REQUEST"
LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
MIB = 1 << 20


class HookError(Exception):
    """The container is not created."""


def hook_command(gpus: Sequence[str], folder: Path) -> list[str]:
    """Return the hook `createRuntime` of a container with these GPUs, empty where it has none.

    It reads the container's state, as OCI's runtime specification gives it to hooks, from stdin,
    and needs `folder` in FAKE_GPU_DIR, whose `cgroup` stands for `/sys/fs/cgroup`, and a way to
    NVML.
    """
    kind = folder / "toolkit"
    variant = kind.read_text().split()[1] if kind.exists() else "present"
    if variant == "missing" or not gpus:
        return []
    ids = [word for gpu in gpus for word in ("--gpu-id", gpu)]
    return [sys.executable, __file__, "hook", "apply-cuda-memory-limits", *ids]


def limits_of(environment: Mapping[str, str], most: int) -> tuple[int, int] | None:
    """Return request and limit in bytes; None where the container has neither variable."""
    request, limit = environment.get(REQUEST), environment.get(LIMIT)
    if request is None and limit is None:
        return None
    hard = most if limit is None else mebibytes(LIMIT, limit, most)
    soft = hard if request is None else mebibytes(REQUEST, request, most)
    if soft > hard:
        raise HookError(
            f"memory request ({soft // MIB} MiB) exceeds memory limit ({hard // MIB} MiB)"
        )
    return soft, hard


def mebibytes(name: str, value: str, most: int) -> int:
    """A decimal number: no unit, sign or space."""
    if re.fullmatch("[0-9]+", value) is None or int(value) > most // MIB:
        raise HookError(f"failed to parse {name}: {value!r} is no number of MiB")
    return int(value) * MIB


def apply(state: Mapping[str, Any], gpus: Sequence[str], folder: Path) -> None:
    """Apply a container's limits to its own cgroup, for each of its GPUs."""
    import pynvml

    from gpu.driver.cgroups import CgroupTree

    config = json.loads((Path(state["bundle"]) / "config.json").read_text())
    environment = dict(entry.partition("=")[::2] for entry in config["process"].get("env", ()))
    most = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
    limits = limits_of(environment, most)
    if limits is None:
        return
    tree = CgroupTree(folder / "cgroup")
    if not tree.exists:
        raise HookError("setting GPU memory limits is only supported in cgroup v2")
    group = str(tree.of(state["pid"])).encode()
    try:
        pynvml.nvmlInit()
        for gpu in gpus:
            asked = pynvml.c_nvmlSetMemoryLimits_v1_t(group, *limits)
            pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(gpu), asked)
    except pynvml.NVMLError as error:
        raise HookError(f"failed to set memory limits: {error}") from None


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    try:
        uuids = [uuid for word, uuid in pairwise(sys.argv) if word == "--gpu-id"]
        apply(json.load(sys.stdin), uuids, Path(os.environ["FAKE_GPU_DIR"]))
    except HookError as error:
        raise SystemExit(str(error)) from None
