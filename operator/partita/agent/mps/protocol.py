"""The protocols of MPS control daemons: which one works, and how a daemon is started with it.

https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html, "Enabling MPS v3" and "Control
Daemon Options". Protocol 3 needs driver r615. Whether it works, or an option, is shown by a daemon
that answers, and never inferred from a version.
"""

import asyncio
import os
from pathlib import Path
from typing import Final, NamedTuple

from partita.agent.errors import SetupError
from partita.agent.mps.control import COMMAND_DEADLINE, CONTROL, NOT_INSTALLED, MPSControl
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.exchange import MPSConfig
from partita.agent.mps.namespaces import daemon_configuration
from partita.agent.paths import write_file

__all__ = ["REFUSED", "DaemonChoice", "control_client", "daemon_choices", "start_daemon"]

_ALL_USERS: Final = ("-multiuser-server", "-M")
"""Forms of the option for one server for the clients of all users, in the order in which they are
tried; `-m` is that of protocol 3. The daemons of drivers 470, 535 and 550 take no option beside
`-f`, that of 555 takes the first one (Debian's package nvidia-cuda-mps: 470.256.02, 535.261.03,
550.163.01, 555.58.02). With 580 the second one is used
(https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/pull/1153)."""
REFUSED: Final = 1
"""Exit code of a daemon that does not know an option (same package)."""
_STATIC_PARTITIONING: Final = "-S"
"""Needed with protocol 2 only (quick-start.html, "Enabling static SM partitioning")."""


def control_client(
    protocol: int, pipes: Path, lock: asyncio.Lock, deadline: float = COMMAND_DEADLINE
) -> MPSControl:
    """Return a client of the daemon of a pipe directory."""
    client = MPSControlV3 if protocol == 3 else MPSControl
    return client(str(pipes), lock, deadline)


class DaemonChoice(NamedTuple):
    """A way to start the daemon."""

    protocol: int
    arguments: list[str]
    single_user: bool = False
    """Whether it serves the clients of one user at a time."""


def daemon_choices(config: MPSConfig, configuration: Path) -> list[DaemonChoice]:
    """Return the ways to start the daemon: the first one, and what follows if it is refused.

    Parameters
    ----------
    configuration
        File that contains `daemon_configuration` for protocol 3.

    Raises
    ------
    SetupError
        The file cannot be written.
    """
    static = [_STATIC_PARTITIONING] if config.static_sm else []
    choices = [DaemonChoice(2, ["-f", option, *static]) for option in _ALL_USERS]
    if config.protocol == 3:
        write_file(configuration, daemon_configuration(config.uuid, config.slots))
        choices.insert(0, DaemonChoice(3, ["-p", "3", "-f", "-m", "-a", str(configuration)]))
    return [*choices, DaemonChoice(2, ["-f", *static], single_user=True)]


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
        raise SetupError("NoMPS", NOT_INSTALLED) from None
