"""Runs a command's coroutine until it ends, or until Ctrl-C or SIGTERM."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from partita.cli import terminal

__all__ = ["Stopped", "run_until_stopped", "stop_on_signals"]

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(click.exceptions.Exit):
    """The command was interrupted by Ctrl-C or SIGTERM. Exit code 130, as a shell reports it."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGINT)


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine with quiet logs. The first signal cancels it, and further ones do nothing.

    Only the main thread receives signals; in another thread the coroutine runs until it ends.

    Raises
    ------
    Stopped
        A signal cancelled the coroutine.
    """
    terminal.quiet_logs()

    async def guarded() -> T:
        task = asyncio.ensure_future(work)
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if not stopped:
                stopped = True
                task.cancel()

        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            if stopped:
                raise Stopped from None
            raise

    return asyncio.run(guarded())


def stop_on_signals() -> asyncio.Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
