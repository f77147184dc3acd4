"""Signals a process that cannot be mistaken for another one with the same PID.

A PID is free for another process as soon as its own has ended. A pidfd stays with the process that
had the PID when it was opened (pidfd_open(2)), so the process is identified after that, and the
signal then reaches either that process or none.
"""

import os
import signal
from collections.abc import Callable

__all__ = ["send"]


def send(pid: int, number: signal.Signals, is_same: Callable[[], bool]) -> str:
    """Send a signal; return why it could not be sent, empty when it was or the process is gone.

    Parameters
    ----------
    is_same
        Tells whether the PID still is that of the process that is meant.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return ""
    try:
        if not is_same():
            return ""
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "the agent may not: its container needs the capability KILL"
    finally:
        os.close(descriptor)
    return ""
