"""A network of this process's own, in which there is nothing but a loopback.

Argo CD's application controller serves its metrics on 0.0.0.0, whatever it is told (3.2.11,
controller/appcontroller.go, ``metricsAddr``). In a network without any other interface nobody
else reaches it there, and the kernel removes the network with its last process, however it ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

__all__ = ["keep_to_own_network"]

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
"""linux/sched.h."""
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
"""linux/sockios.h and linux/if.h; see `man 7 netdevice`."""


def keep_to_own_network() -> None:
    """Leave the machine's network: this thread, and all threads and processes it starts from now.

    Who is not root needs a kernel that lets everybody make a user namespace.

    Raises
    ------
    OSError
        The kernel does not let this process do so.
    """
    user, group = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWNET if user == 0 else CLONE_NEWNET | CLONE_NEWUSER)
    if user != 0:  # stay who we are: `man 7 user_namespaces`
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network of its own: {os.strerror(number)}")
