"""The container toolkit's hook applies limits, proven by reading them back."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from acceptance.bench import MIB, Bench
from acceptance.cgroups import limits
from acceptance.requirements import (
    CGROUP_ROOT,
    needs_cgroups,
    needs_container_runtime,
    needs_driver,
    needs_root,
)
from acceptance.results import CannotRunError, Check, Findings, Outcome, Unmet

__all__ = ["HOOKS"]

_RUNTIMES = ("docker", "podman", "nerdctl")
_REQUEST, _LIMIT = 1537, 2049
"""MiB: odd amounts, which nothing else sets."""
_DEADLINE = 60.0
"""Seconds for one command of the container runtime. An assumption."""


def _image(bench: Bench) -> Unmet | None:
    """An image with `sleep` is on this machine: nothing is downloaded."""
    if bench.image:
        return None
    return Unmet(Outcome.NOT_RUN, "name an image of this machine that has `sleep` with --image")


def _run(*words: str) -> str:
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=_DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"{words[0]} {words[1]} takes over {_DEADLINE:g} s") from None
    if ran.returncode != 0:
        raise CannotRunError(f"{words[0]} {words[1]} failed: {ran.stderr.strip()[-300:]}")
    return ran.stdout.strip()


@contextlib.contextmanager
def _container(bench: Bench, options: Sequence[str]) -> Iterator[Path]:
    """Run a container with limits; return its cgroup."""
    runtime = next(name for name in _RUNTIMES if shutil.which(name))
    variables = {"NVIDIA_GPU_MEMORY_REQUEST": _REQUEST, "NVIDIA_GPU_MEMORY_LIMIT": _LIMIT}
    environment = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    command = [runtime, "run", "--detach", "--rm", "--network=none", "--pull=never"]
    made = _run(*command, *environment, *options, bench.image, "sleep", "300")
    try:
        pid = _run(runtime, "inspect", "--format={{.State.Pid}}", made)
        row = Path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1]
        yield CGROUP_ROOT / row.partition("::")[2].lstrip("/")
    finally:
        _run(runtime, "kill", made)


def _hook(way: str, bench: Bench, findings: Findings) -> None:
    uuid = bench.identity.uuid
    options = {
        "runtimeclass": ["--runtime=nvidia", "-e", f"NVIDIA_VISIBLE_DEVICES={uuid}"],
        "cdi": ["--device", f"nvidia.com/gpu={uuid}"],
    }[way]
    with _container(bench, options) as cgroup:
        found = limits(bench.gpu, cgroup)
    findings.figures |= {
        "soft limit read back, MiB": found and found.soft // MIB,
        "hard limit read back, MiB": found and found.hard // MIB,
    }
    findings.expect(found is not None, "no limit was applied")
    findings.expect(
        found is None or (found.soft, found.hard) == (_REQUEST * MIB, _LIMIT * MIB),
        f"the limits are not the {_REQUEST} and {_LIMIT} MiB that were asked for",
    )


def _check(way: str, how: str) -> Check:
    return Check(
        name=f"limit-hook-{way}",
        done=f"A container that gets the GPU through {how} has NVIDIA_GPU_MEMORY_REQUEST={_REQUEST} "
        f"and NVIDIA_GPU_MEMORY_LIMIT={_LIMIT}. NVML reads the limits of its cgroup.",
        expected="The hook of NVIDIA's container toolkit (1.20.1 or newer) has set exactly these.",
        run=partial(_hook, way),
        seconds=90,
        requires=(
            needs_driver(615, "memory limits for cgroups"),
            needs_root,
            needs_cgroups,
            needs_container_runtime(*_RUNTIMES),
            _image,
        ),
    )


HOOKS = (
    _check("runtimeclass", "NVIDIA's runtime, as a RuntimeClass does it"),
    _check("cdi", "the node's CDI file"),
)
