"""Builds the fake GPU with gcc, and lets a test script it.

A pytest plug-in: `fake_gpus` is a folder of fake GPUs for one test; see `state.h` for its files.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

import pytest

from gpu.driver.cgroups import CgroupTree, value_of
from support.polling import TIMEOUT

__all__ = ["MIB", "Built", "FakeGPUs", "build", "uuid_of"]

MIB = 1 << 20
SOURCES = Path(__file__).parent
GRACE_SECONDS = 5
"""For a program of ours to end at SIGTERM; no figure of a GPU."""


def uuid_of(gpu: int) -> str:
    """The UUID of the n-th fake GPU."""
    return f"GPU-{gpu + 1:08x}-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Built:
    """The built fake: everything in one folder, ready to be copied into an image."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "fake-cuda"

    @property
    def driver(self) -> Path:
        return self.folder / "driver.py"

    @cached_property
    def drivers(self) -> Drivers:
        return Drivers(self.driver)


class Drivers:
    """The drivers of all tests, in one process: to start one takes longer than many a test."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, folder: Path) -> None:
        """Start that of a folder."""
        self._say(f"start {folder}")

    def end(self, folder: Path) -> None:
        """End it; what is still connected has no driver any more."""
        self._say(f"end {folder}")

    def close(self) -> None:
        self._process.communicate(timeout=TIMEOUT)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n"


def build_once(temporary: Path) -> Built:
    """Build it where all processes of a test run find it, if none has yet."""
    built = Built(temporary / "fake-gpu")
    with (temporary / "fake-gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return built if built.driver.exists() else build(built.folder)


def build(folder: Path) -> Built:
    """Build it."""
    folder.mkdir(parents=True, exist_ok=True)
    gcc = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation"]
    library = ["-shared", "-fPIC", "-Wl,-Bsymbolic"]
    cuda, nvml = SOURCES / "cuda", SOURCES / "nvml"
    made: dict[str, list[str | Path]] = {
        "libnvidia-ml.so.1": [
            *library,
            *(nvml / f"{n}.c" for n in ("nvml", "processes", "limits")),
        ],
        "libcuda.so.1": [*library, *(cuda / f"{n}.c" for n in ("libcuda", "kernels", "client"))],
        "nvidia-cuda-mps-control": [SOURCES / "mps" / "control.c"],
        "enter-container": [SOURCES / "container" / "enter.c"],
        "fake-cuda": [cuda / "cuda.c", cuda / "client.c"],
    }
    for name, arguments in made.items():
        named = [f"-Wl,-soname,{name}"] if "-shared" in arguments else []
        subprocess.run([*gcc, "-o", folder / name, *named, *arguments], check=True)
    shutil.copy(folder / "fake-cuda", folder / "nvidia-cuda-mps-server")
    pack(SOURCES / "mps", folder / "nvidia-cuda-mps-control.py")
    pack(SOURCES / "driver", folder / "driver.py")
    return Built(folder)


def pack(sources: Path, program: Path) -> None:
    """Make one file of a program's modules; Python runs it as it is."""
    with ZipFile(program, "w") as archive:
        for source in sources.glob("*.py"):
            name = "__main__" if source.stem == "main" else source.stem
            archive.write(source, f"{name}.py")
            # To compile it would take a quarter of each start.
            compiled = program.with_suffix(".pyc")
            py_compile.compile(
                str(source),
                str(compiled),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            archive.write(compiled, f"{name}.pyc")


@dataclass
class FakeGPUs:
    """The fake GPUs of one test; what it started it ends."""

    built: Built
    folder: Path
    children: list[subprocess.Popen[str]] = field(default_factory=list)
    has_driver: bool = False

    def add(self, gpu: int = 0, **figures: object) -> str:
        """Add a GPU or change its figures; None takes one away. Returns its UUID."""
        path = self.folder / f"gpu-{gpu}"
        now: dict[str, object] = {
            "uuid": uuid_of(gpu),
            "name": "NVIDIA A100-SXM4-40GB",
            "memory": 40960 * MIB,
        }
        if path.exists():
            for line in path.read_text().splitlines():
                key, _, value = line.partition(" ")
                now[key] = value
        merged = {k: v for k, v in {**now, **figures}.items() if v is not None}
        self._write(path, "".join(f"{k} {v}\n" for k, v in merged.items()))
        return str(merged["uuid"])

    def install_driver(self, version: str = "580.95.05", **more: object) -> None:
        """Install a driver; `cuda=13040` is its CUDA."""
        lines = {"version": version, **more}
        self._write(self.folder / "driver", "".join(f"{k} {v}\n" for k, v in lines.items()))

    def install_toolkit(self, hook: str) -> None:
        """Install a container toolkit whose hook is `present` or `missing`."""
        self._write(self.folder / "toolkit", f"hook {hook}\n")

    @property
    def cgroups(self) -> CgroupTree:
        """The node's cgroups; none before `mount_cgroups`."""
        return CgroupTree(self.folder / "cgroup")

    def mount_cgroups(self, *, dmem: bool = True) -> CgroupTree:
        """Give the node cgroup v2, with or without the controller dmem, once its GPUs are there."""
        files = [path for path in self.folder.glob("gpu-*") if not path.suffix]
        numbers = {int(path.name.removeprefix("gpu-")): path for path in files}
        capacities = {gpu: int(value_of(path, "memory")) for gpu, path in numbers.items()}
        self.cgroups.mount(capacities, dmem=dmem)
        return self.cgroups

    def processes(self, *rows: tuple[int, int, int, str], gpu: int = 0) -> None:
        """Say which processes use a GPU: PID, bytes, percent of SMs, kind."""
        text = "".join(f"{pid} {memory} {sm} {kind}\n" for pid, memory, sm, kind in rows)
        self._write(self.folder / f"gpu-{gpu}.processes", text)

    def use(self, gpu: int = 0) -> dict[int, tuple[int, int]]:
        """Bytes and percent of SMs of the programs on a GPU now, by PID; the MPS server left out."""
        path = self.folder / f"gpu-{gpu}.processes"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {int(pid): (int(memory), int(sm)) for pid, memory, sm, kind in rows if kind != "S"}

    def pids(self, gpu: int = 0) -> dict[int, int]:
        """What the programs on a GPU have now, by PID; the MPS server left out."""
        return {pid: memory for pid, (memory, _) in self.use(gpu).items()}

    def mode(self, gpu: int = 0) -> int:
        """The compute mode."""
        path = self.folder / f"gpu-{gpu}.mode"
        return int(path.read_text()) if path.exists() else 0

    def xid(self, number: int, gpu: int = 0) -> None:
        with (self.folder / f"gpu-{gpu}.xids").open("a") as file:
            file.write(f"{number}\n")

    def wedge(self) -> None:
        """Wedge MPS, as a client does that is killed with work in flight."""
        (self.folder / "gpu-0.wedged").touch()

    def mps(self, **script: object) -> None:
        """Make the MPS daemon misbehave; without arguments it behaves again."""
        self._write(self.folder / "mps", "".join(f"{k} {v}\n" for k, v in script.items()))

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of programs that are to see these GPUs."""
        path = f"{self.built.folder}:{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "LD_LIBRARY_PATH": str(self.built.folder),
            "FAKE_GPU_DIR": str(self.folder),
            "FAKE_MPS_PYTHON": sys.executable,
            **more,
        }

    def start_driver(self) -> None:
        """Start what programs need; a test that runs none does without."""
        self.built.drivers.start(self.folder)
        self.has_driver = True

    def start(self, *command: object, **environment: str) -> subprocess.Popen[str]:
        """Start a program that sees the GPUs."""
        child = subprocess.Popen(
            [str(word) for word in command],
            env=self.environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def run(self, *steps: str, **environment: str) -> subprocess.Popen[str]:
        """Start a CUDA program."""
        return self.start(self.built.program, *steps, **environment)

    def close(self) -> None:
        for child in reversed(self.children):
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signal.SIGCONT)
                    child.terminate()
                try:
                    child.wait(GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    child.kill()
            child.communicate(timeout=TIMEOUT)
        if self.has_driver:
            self.built.drivers.end(self.folder)

    def _write(self, path: Path, text: str) -> None:
        path.with_name(path.name + ".new").write_text(text)
        path.with_name(path.name + ".new").replace(path)


@pytest.fixture(scope="session")
def fake_gpu_build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The built fake, with its NVML loaded into this process.

    The loader takes a library that is loaded already for one that is asked for by its soname, so
    pynvml's `libnvidia-ml.so.1` is ours from here on.
    """
    temporary = tmp_path_factory.getbasetemp()
    built = build_once(temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary)
    ctypes.CDLL(str(built.folder / "libnvidia-ml.so.1"))
    yield built
    if "drivers" in vars(built):
        built.drivers.close()


@pytest.fixture
def fake_gpus(fake_gpu_build: Built, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPUs]:
    """One GPU with a driver; a test adds others."""
    # Sockets lie in it, and their paths are short: 107 bytes (unix(7)).
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        gpus = FakeGPUs(fake_gpu_build, Path(folder))
        monkeypatch.setenv("FAKE_GPU_DIR", folder)
        monkeypatch.setenv("FAKE_MPS_PYTHON", sys.executable)
        monkeypatch.setenv("PATH", str(fake_gpu_build.folder), prepend=os.pathsep)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_gpu_build.folder), prepend=os.pathsep)
        gpus.install_driver()
        gpus.add(0)
        try:
            yield gpus
        finally:
            gpus.close()
