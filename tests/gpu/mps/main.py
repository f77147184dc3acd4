"""Starts the fake MPS control daemon with the protocol that its arguments ask for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from daemon import Daemon
from daemon_v3 import DaemonV3


async def main() -> None:
    words = sys.argv[1:]
    if "-p" in words and words[words.index("-p") + 1] == "3":
        apply = words[words.index("-a") + 1] if "-a" in words else ""
        daemon: Daemon = DaemonV3(multiuser="-m" in words, config=apply)
    else:
        multiuser = "-multiuser-server" in words or "-M" in words
        daemon = Daemon(multiuser=multiuser, static="-S" in words)
    daemon.foreground = "-f" in words
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.stop.set)
    await daemon.run()
    sys.stdout.flush()
    os._exit(0)  # asyncio once waited without end for a server whose start it had cancelled


if __name__ == "__main__":
    asyncio.run(main())
