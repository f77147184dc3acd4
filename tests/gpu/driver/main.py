"""Starts the driver; run it with the folder of `state.h` in FAKE_GPU_DIR."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from driver import Driver


async def main(folder: Path) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    path = folder / "driver.sock"
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(Driver(folder).serve, path)
    path.chmod(0o666)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(os.environ["FAKE_GPU_DIR"])))
