"""Attribution of GPU faults to jobs.

NVIDIA's MPS reports a fatal fault to every client of the GPU "without indicating which client
generated the error" (https://docs.nvidia.com/deploy/mps/latest/, "Error Containment"). NVML's event
contains the Xid and no process, and co-located jobs print the same CUDA error as the job that
caused the fault. So there is no reliable evidence of the cause, and the rule uses none:

1. Every job on the GPU is equally a suspect. It is queued again at its old position, and the fault
   counts against no limit. From its second fault on it waits for a backoff that doubles.
2. A job that was a suspect twice runs alone on its GPU from then on. A job that did not cause the
   faults ends there as it would have ended anyway.
3. A fault while a job runs alone is that job's own failure: it counts against `retry.limit`. If no
   container of it is known to have started, it is a suspect instead: kubelet may report that late.

Faults that are not the failure of a program make no job a suspect, alone or not: failed hardware, a
server Pod that was deleted or evicted, and the effects of a client of MPS that was killed with work
in flight: a fault of the others, or a wedged server. A job whose own client was killed is judged by
how its Pod ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partita.models import Allocation, Attempt, Outcome

__all__ = [
    "CLIENT_KILLED",
    "HARDWARE",
    "Ending",
    "GPUFault",
    "ending_of",
    "must_run_alone",
]

_FAULTS_BESIDE_OTHERS: Final = 2
"""Faults with co-located jobs after which a job runs alone."""

HARDWARE: Final = frozenset({"ECCError", "GPULost", "RecoveryNeeded", "XidError"})
"""Reasons of the conditions Ready and Faulted that mean failed hardware
(`partita.agent.gpu.gpu_health`)."""
CLIENT_KILLED: Final = "MPSClientKilled"
"""Reason of the condition Faulted after a client was killed with work in flight."""
_EFFECTS_OF_A_KILL: Final = frozenset({CLIENT_KILLED, "MPSWedged"})
"""Reasons of the condition Faulted that are effects of a killed client
(`partita.agent.mps.mps_health`)."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why and how to end an attempt on purpose."""

    outcome: Outcome
    message: str
    suspect: bool = False
    """Whether its program may have caused the GPU fault that ends it."""
    reason: str = ""
    """Kubernetes' reason, if the attempt's Pod did not start."""


@dataclass(frozen=True, slots=True)
class GPUFault:
    """Why all programs on a GPU are lost."""

    reason: str
    """Reason of the GPUServer's condition Faulted; empty if its server Pod is gone."""
    message: str
    killed: str = ""
    """UID of the claim whose client was killed, if this is the cause."""
    hardware: str = ""
    """Reason and message of a failure of the GPU's hardware at the same time, which explains it."""

    @property
    def text(self) -> str:
        """Reasons and messages."""
        found = ": ".join(filter(None, (self.reason, self.message)))
        return "; ".join(dict.fromkeys(filter(None, (self.hardware, found))))

    @property
    def may_be_a_programs(self) -> bool:
        """Whether a program may have caused it. An unknown reason counts as caused by a program."""
        no_program = self.hardware or self.reason in HARDWARE | _EFFECTS_OF_A_KILL
        return bool(self.reason) and not no_program


def ending_of(
    server: str, fault: GPUFault, allocation: Allocation, *, started: bool = True
) -> Ending:
    """Return how the attempt of a job on a faulted GPU ends.

    Parameters
    ----------
    server
        Name of the GPUServer.
    allocation
        The job's allocation on it.
    started
        Whether a container of the attempt may have started.
    """
    if not fault.may_be_a_programs:
        return Ending(Outcome.GPU_FAULT, f"{server}: {fault.text}")
    if allocation.alone and started:
        said = (
            f"{server} faulted while the job was alone on it, so this counts as its own failure: "
            f"{fault.text}"
        )
        return Ending(Outcome.FAILED, said)
    return Ending(Outcome.GPU_FAULT, f"{server}: {fault.text}", suspect=True)


def must_run_alone(attempts: Sequence[Attempt]) -> bool:
    """Return whether a job was a suspect of too many faults to be co-located again."""
    return sum(bool(a.fault_suspect) for a in attempts) >= _FAULTS_BESIDE_OTHERS
