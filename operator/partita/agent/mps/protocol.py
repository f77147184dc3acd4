"""The protocols of MPS control daemons: which one works, and how a daemon is started with it.

https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html, "Enabling MPS v3" and "Control
Daemon Options". Protocol 3 needs driver r615. Whether it works, or an option, is shown by a daemon
that answers, and never inferred from a version.
"""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from partita.agent.errors import MPSError, SetupError
from partita.agent.mps.config import MPSConfig
from partita.agent.mps.control import COMMAND_DEADLINE, CONTROL, MPSControl
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import daemon_configuration

__all__ = [
    "ALL_USERS",
    "control_client",
    "daemon_arguments",
    "is_refused",
    "protocol_3_problem",
    "start_daemon",
]

_PROBE_DEADLINE: Final = 15.0
"""Seconds in which a daemon without a server must answer. An assumption: it does not use the GPU,
so it starts at once."""
_POLL: Final = 0.1
"""Seconds between two commands to a daemon that starts."""
ALL_USERS: Final = ("-multiuser-server", "-M", "-m")
"""Forms of the option for one server for the clients of all users, in the order in which they are
tried; `-m` is that of protocol 3. The daemons of drivers 470, 535 and 550 take no option beside
`-f`, that of 555 takes the first one (Debian's package nvidia-cuda-mps: 470.256.02, 535.261.03,
550.163.01, 555.58.02). With 580 the second one is used
(https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/pull/1153)."""
_V3: Final = ("-p", "3")
_REFUSED: Final = 1
"""Exit code of a daemon that does not know an option (same package)."""
_STATIC_PARTITIONING: Final = "-S"
"""Needed with protocol 2 only (quick-start.html, "Enabling static SM partitioning")."""


def control_client(
    protocol: int, pipes: Path, lock: asyncio.Lock, deadline: float = COMMAND_DEADLINE
) -> MPSControl:
    """Return a client of the daemon of a pipe directory."""
    client = MPSControlV3 if protocol == 3 else MPSControl
    return client(str(pipes), lock, deadline)


def daemon_arguments(protocol: int, config: MPSConfig, configuration: Path) -> list[list[str]]:
    """Return the arguments of the daemon: those that are tried first, and what follows if refused.

    Parameters
    ----------
    configuration
        File that contains `daemon_configuration` for protocol 3.
    """
    *older, newer = ALL_USERS
    if protocol == 3:
        configuration.write_text(daemon_configuration(config.uuid, config.slots))
        return [[*_V3, "-f", newer, "-a", str(configuration)]]
    static = [_STATIC_PARTITIONING] if config.static_sm else []
    return [*(["-f", option, *static] for option in older), ["-f", *static]]


async def start_daemon(
    arguments: list[str], uuid: str, pipes: Path, logs: Path
) -> asyncio.subprocess.Process:
    """Start a daemon in the foreground, as the leader of a session.

    Its output must be read: in the foreground neither the daemon nor its server writes log files.

    Raises
    ------
    SetupError
        The program is missing.
    """
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(logs),
    }
    try:
        return await asyncio.create_subprocess_exec(
            CONTROL,
            *arguments,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise SetupError(
            "NoMPS",
            f"{CONTROL} is not on PATH: NVIDIA's runtime installs it with the driver "
            "capability `compute`",
        ) from None


async def is_refused(process: asyncio.subprocess.Process, pipes: Path) -> bool:
    """Return whether a daemon that was just started exits because it does not know an option.

    With protocol 2 only: whether a daemon of protocol 3 creates the same socket is not documented.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_PROBE_DEADLINE):
            while process.returncode is None and not (pipes / "control").exists():  # noqa: ASYNC110
                await asyncio.sleep(_POLL)
    return process.returncode == _REFUSED


async def protocol_3_problem(directory: Path, uuid: str) -> str:
    """Return why protocol 3 does not work; empty if it works.

    A daemon with protocol 3 and without a server is started, and has to list its servers.

    Parameters
    ----------
    directory
        Directory that is created for its pipes and logs, and removed.

    Raises
    ------
    SetupError
        The program is missing.
    """
    pipes, logs = directory / "pipe", directory / "log"
    for path in (pipes, logs):
        path.mkdir(parents=True, exist_ok=True)
    process = await start_daemon([*_V3, "-f", ALL_USERS[-1]], uuid, pipes, logs)
    control = control_client(3, pipes, asyncio.Lock())
    problem = f"no answer within {_PROBE_DEADLINE:g} s"
    try:
        async with asyncio.timeout(_PROBE_DEADLINE):
            while process.returncode is None:
                try:
                    await control.servers()
                except MPSError as error:
                    problem = str(error)  # usually the daemon has not created its socket yet
                else:
                    return ""
                await asyncio.sleep(_POLL)
        if process.returncode == _REFUSED:
            problem = f"it refuses the option {_V3[0]}"
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        shutil.rmtree(directory, ignore_errors=True)
    return problem
