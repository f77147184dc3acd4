"""What NVIDIA says to do after each Xid, an error number that the driver reports for a GPU.

The numbers are the "Resolution Bucket (Immediate Action)" of NVIDIA's Xid catalogue for Ampere and
later GPUs, release 610: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

__all__ = ["CONTAINED", "FATAL_TO_CLIENTS", "XidAction", "xid_action"]


class XidAction(StrEnum):
    """What has to be done after an Xid."""

    IGNORE = "ignore"
    RESTART_APP = "restart-app"
    """CUDA has ended the programs that it concerns. The GPU and all other programs are healthy."""
    RESET = "reset"
    """All work on the GPU is lost, and the GPU or its node must be reset. No program is the cause.
    """
    UNKNOWN = "unknown"
    """The catalogue does not list it, or its action depends on what NVML does not report. Running
    programs go on, and the GPU takes no new ones."""


_XIDS: Final = {
    # 45 follows another Xid or the end of a program. The catalogue's workflow ignores it then.
    # 152 and 153 apply to none of the catalogue's GPUs.
    XidAction.IGNORE: "14 37 38 43-45 63 66 67 92 93 106-108 121 137 141 152 153 157 160 161",
    XidAction.RESTART_APP: "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 "
    "139",
    # 79 and 151 ask for a restart of the node or the virtual machine. 48 is not here: what it asks
    # for is said by what follows, 63 ("DRAIN_AND_RESET"), 64 or 95, or by the recovery action. It
    # also comes with contained errors: https://github.com/wtdcode/vllm-backport/issues/62 has 48,
    # 63, 94 and 154 ("Drain and Reset") of one A100.
    XidAction.RESET: "46 62 64 79 95 109 110 119 120 136 140 143 151 155 156 158",
}

CONTAINED: Final = 94
"""An error of the memory that has ended one program: "All other applications running at the time of
the Xid are unaffected. ... Applications can continue to be run until the reset can be performed".
"""
FATAL_TO_CLIENTS: Final = frozenset({13, 31})
"""Errors of one program that MPS reports to every client of the GPU as "a fatal GPU exception"
(https://docs.nvidia.com/deploy/mps/latest/, "Error Containment"). After the others the state of the
MPS server and its log show whether clients are lost."""


def _numbers(text: str) -> Iterator[int]:
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


_ACTIONS: Final = {xid: action for action, text in _XIDS.items() for xid in _numbers(text)}


def xid_action(xid: int) -> XidAction:
    """Return what has to be done after an Xid."""
    return _ACTIONS.get(xid, XidAction.UNKNOWN)
