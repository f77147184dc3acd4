"""The program in the Pods of `partita doctor`: it shows on a GPU whether memory limits hold.

    python3 -m partita.agent.check ROLE MEBIBYTES SECONDS

MEBIBYTES is the GPU memory that a program may use. Roles:

- `limit` allocates more than that, until an allocation is refused. Then it keeps its memory for
  SECONDS.
- `neighbour` allocates and frees less than that again and again, until SIGTERM, and counts
  failures.
- `alone` starts an MPS daemon and one program of each role as its clients. It is for clusters
  without Partita and needs a whole GPU.

Results are lines of JSON on stdout. Only the driver is needed: no CUDA toolkit and no framework.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

from partita.agent.errors import CUDAError, MPSError, NVMLError
from partita.agent.event_wait import ends_within
from partita.agent.gpu import nvml
from partita.agent.gpu.cuda_driver import CUDADriver
from partita.agent.mps.control import CONTROL, MPSControl

__all__ = ["main"]

_MEBI: Final = 1 << 20
_CHUNK: Final = 64
"""MiB of one allocation."""
_PAUSE: Final = 0.25
"""Seconds between two allocations of `neighbour`."""
_DAEMON_STARTS: Final = 20.0
"""Seconds in which the MPS daemon must answer. An assumption."""
_ENDS: Final = 10.0
"""Seconds in which a program or the daemon must end. An assumption."""
_COMPUTE_MODES: Final = ("Default", "ExclusiveThread", "Prohibited", "ExclusiveProcess")
"""Names of `nvmlComputeMode_t` by number: https://docs.nvidia.com/deploy/nvml-api/."""


def main(arguments: list[str]) -> int:
    """Run one role; return 0 if it was carried out, whatever it found."""
    role, mebibytes, seconds = arguments
    roles: dict[str, Callable[[int, float], None]] = {
        "limit": _limit,
        "neighbour": _neighbour,
        "alone": _alone,
    }
    try:
        roles[role](int(mebibytes), float(seconds))
    except (CUDAError, OSError) as error:
        _report("error", role=role, message=str(error))
        return 1
    return 0


def _report(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, "time": time.time(), **found}), flush=True)  # noqa: T201


@contextmanager
def _gpu() -> Iterator[CUDADriver]:
    driver = CUDADriver()
    driver.initialize()
    devices = list(driver.devices().values())
    if not devices:
        raise CUDAError("CUDA sees no GPU")
    with driver.context(devices[0]):
        yield driver


def _limit(mebibytes: int, seconds: float) -> None:
    _report("facts", **_facts())
    with _gpu() as driver:
        memory = driver.memory()
        granted, refusal = 0, ""
        while granted < 2 * mebibytes and not refusal:
            try:
                driver.allocate(_CHUNK * _MEBI)
                granted += _CHUNK
            except CUDAError as error:
                refusal = str(error)
        _report(
            "limit",
            share=mebibytes,
            granted=granted,
            refusal=refusal,
            total=memory.total // _MEBI,
            used=_used(),
        )
        time.sleep(seconds)


def _neighbour(mebibytes: int, _seconds: float) -> None:
    # A blocked signal does not interrupt the driver's calls.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    count, failures, said = 0, 0, ""
    # Half of its share leaves room for the contexts.
    blocks = max(1, mebibytes // _CHUNK // 2)
    with _gpu() as driver:
        while signal.sigtimedwait([signal.SIGTERM], _PAUSE) is None:
            held = []
            try:
                for _ in range(blocks):
                    held.append(driver.allocate(_CHUNK * _MEBI))  # noqa: PERF401 - what was allocated is freed
                count += 1
            except CUDAError as error:
                failures, said = failures + 1, str(error)
            for address in held:
                driver.free(address)
            _report("neighbour", allocations=count, failures=failures, error=said)


def _facts() -> dict[str, Any]:
    """Describe the GPU, as far as NVML may be used here, and the container."""
    facts: dict[str, Any] = {
        "cgroupVersion": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        "uid": os.getuid(),
    }
    with suppress(NVMLError):
        nvml.open_library()
        for gpu in nvml.gpus():
            identity, mode = gpu.identity(), gpu.compute_mode()
            facts |= {
                "driver": identity.driver,
                "cuda": identity.cuda,
                "uuid": identity.uuid,
                "product": identity.product,
                "memory": identity.memory // _MEBI,
                "mig": identity.mig,
                "computeMode": None if mode is None else _COMPUTE_MODES[mode],
                "used": gpu.memory_used() // _MEBI,
            }
    return facts


def _used() -> int | None:
    """Return the MiB in use on the GPU; None if NVML cannot be used here."""
    with suppress(NVMLError):
        return next((gpu.memory_used() // _MEBI for gpu in nvml.gpus()), None)
    return None


def _alone(mebibytes: int, seconds: float) -> None:
    asyncio.run(_both(str(mebibytes), str(seconds)))


async def _both(mebibytes: str, seconds: str) -> None:
    """Run both roles as clients of an MPS daemon of our own, and pass on what they print."""
    with tempfile.TemporaryDirectory() as folder:
        async with _mps(folder) as environment:
            environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={mebibytes}M"
            own = (sys.executable, "-m", "partita.agent.check")
            neighbour = await asyncio.create_subprocess_exec(
                *own,
                "neighbour",
                mebibytes,
                seconds,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
            )
            stdout = cast("asyncio.StreamReader", neighbour.stdout)
            _pass_on(await stdout.readline())
            limit = await asyncio.create_subprocess_exec(
                *own, "limit", mebibytes, seconds, env=environment
            )
            await limit.wait()
            with suppress(ProcessLookupError):
                neighbour.terminate()
            _pass_on(await stdout.read())
            await neighbour.wait()


def _pass_on(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.flush()


@asynccontextmanager
async def _mps(folder: str) -> AsyncIterator[dict[str, str]]:
    """Run an MPS daemon; yield the variables of its clients.

    Raises
    ------
    OSError
        It does not start.
    """
    environment = {
        **os.environ,
        "CUDA_MPS_PIPE_DIRECTORY": folder,
        "CUDA_MPS_LOG_DIRECTORY": folder,
    }
    daemon = await asyncio.create_subprocess_exec(
        CONTROL, "-f", env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    control = MPSControl(folder, asyncio.Lock())
    try:
        await _answering(control, daemon)
        yield environment
    finally:
        with suppress(MPSError):
            await control.quit()
            await ends_within(_ENDS, daemon.wait())
        if daemon.returncode is None:
            daemon.kill()


async def _answering(control: MPSControl, daemon: asyncio.subprocess.Process) -> None:
    """Wait until the daemon answers."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DAEMON_STARTS):
            while daemon.returncode is None:
                with suppress(MPSError):
                    await control.servers()
                    return
                await asyncio.sleep(_PAUSE)
    raise OSError(f"the MPS daemon does not start (exit code {daemon.returncode})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
