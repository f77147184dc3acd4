"""The meaning of each Xid, an error number that NVIDIA's driver reports for a GPU."""

from enum import StrEnum
from typing import Final

__all__ = ["FATAL_TO_CLIENTS", "QUIET_SECONDS", "XidKind", "xid_kind"]


class XidKind(StrEnum):
    """Effect of an Xid on the jobs that share the GPU."""

    APPLICATION = "application"
    """An error of one program. The GPU is healthy; MPS reports whether other clients are lost."""
    FAULT = "fault"
    """All work on the GPU is lost. The GPU may recover by itself."""
    RESET = "reset"
    """All work on the GPU is lost, and the GPU needs a reset."""


# https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. The Xids of a healthy GPU
# are those that NVIDIA's device plugin ignores (k8s-device-plugin, internal/rm/health.go), and
# three from the catalogue that report no lasting damage.
_APPLICATION: Final = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    63: "row remapping recorded",
    68: "video processor exception",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    109: "context switch timeout",
}
FATAL_TO_CLIENTS: Final = frozenset({13, 31})
"""Errors of one program that MPS reports to every client of the GPU as "a fatal GPU exception"
(https://docs.nvidia.com/deploy/mps/latest/, "Error Containment"). 43 and 45 are not included,
because they also occur when a program is only terminated."""
_RESET: Final = {
    48: "double-bit ECC error",
    64: "row remapping failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained ECC error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    154: "GPU recovery action changed",
}

QUIET_SECONDS: Final = {XidKind.FAULT: 60.0, XidKind.RESET: 300.0}
"""Seconds without another Xid after which a GPU that answers counts as healthy again. An
assumption: NVML has no event for a recovery and does not report that a GPU was reset."""


def xid_kind(xid: int) -> tuple[XidKind, str]:
    """Return the kind and the meaning of an Xid. An Xid that is not listed is a fault."""
    if xid in _APPLICATION:
        return XidKind.APPLICATION, _APPLICATION[xid]
    if xid in _RESET:
        return XidKind.RESET, _RESET[xid]
    return XidKind.FAULT, "see NVIDIA's Xid catalogue"
