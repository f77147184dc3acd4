"""Notices MPS clients whose memory NVML does not report: they could exceed their allocation unseen.

NVML lists processes "with a compute context" (nvml.h in NVIDIA/nvidia-settings), and CUDA connects
to MPS when a program only asks for the number of GPUs
(https://github.com/apecloud/ApeRAG/issues/120). So memory that belongs to no listed process must
have come with a client that is not listed.
"""

from collections.abc import Mapping
from typing import Final

from partita.agent.health import Health, HealthProblem, Source
from partita.agent.times import AgentTimes
from partita.models.quantities import MEBI, mebibytes

__all__ = ["UnlistedClients"]

_NOTICED: Final = 256 * MEBI
"""Bytes of no process that count as those of a client.

An assumption (client-without-context): the driver's own memory changes by less than 256 MiB. If it
changes by more, a program that only counts GPUs keeps new jobs away."""


class UnlistedClients:
    """The clients of one GPU that MPS names and NVML does not.

    Parameters
    ----------
    health
        Receives the problem.
    times
        How long it waits.
    """

    def __init__(self, health: Health, times: AgentTimes) -> None:
        self._health = health
        self._times = times
        self._own: int | None = None
        """Bytes of no process while NVML listed every client: the driver's own."""
        self._since: dict[int, float] = {}

    def check(
        self, clients: frozenset[int], memory: Mapping[int, int], unattributed: int, now: float
    ) -> None:
        """Compare the clients of MPS with the processes that NVML lists.

        Parameters
        ----------
        clients
            PIDs of the clients.
        memory
            Bytes by PID; 0 if NVML does not report them.
        unattributed
            Bytes in use that belong to no process.
        now
            Seconds of a monotonic clock.
        """
        unlisted = {pid for pid in clients if not memory.get(pid)}
        if self._own is None or not unlisted:
            self._own = unattributed
        self._since = {pid: self._since.get(pid, now) for pid in unlisted}
        long_ago = now - self._times.samples_within
        lasting = sorted(pid for pid, since in self._since.items() if since <= long_ago)
        more = unattributed - self._own
        if not lasting or more < _NOTICED:
            self._health.set(Source.MPS_CLIENTS, None)
            return
        pids = ", ".join(map(str, lasting[:5]))
        message = (
            f"NVML lists no memory of some clients of MPS (PID {pids}), and {mebibytes(more)} of "
            "no process: jobs could exceed their memory unseen; install another driver"
        )
        self._health.set(Source.MPS_CLIENTS, HealthProblem("ClientsNotListed", message))
