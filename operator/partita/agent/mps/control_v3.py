"""Sends commands of MPS protocol 3 to a control daemon.

Commands and columns of the lists: https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html.
The lists are read as CSV: a table cuts off long cells, PIDs too (kai-scheduler/gpu-fractioning,
fractioning-manager/mpsd/internal/mpsctl/control.go, measured with driver 615).
"""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from partita.agent.errors import MPSGarbledError, MPSRefusedError
from partita.agent.mps.control import MPSControl, ServerState, parse_pids
from partita.agent.mps.namespaces import SERVER, NamespaceLimits, slot_namespace
from partita.agent.mps.sm_partitions import equal_chunks, no_partitions

__all__ = ["MPSControlV3", "parse_rows"]

_CSV: Final = "--format=csv,noheader"
_OF_SERVER: Final = f"--server={SERVER}"
_SERVER_COLUMNS: Final = 7
"""name, uid, pid, status, pipe-directory, allowed-devices, context-ids."""
_CLIENT_COLUMNS: Final = 5
"""PID, server, device, namespace and command. The command may contain commas."""
_NAMESPACE_COLUMNS: Final = 7
"""name, server, server-status, pinned-memory-limit, active-thread-percentage, client-priority,
pipe-directory."""
_PARTITION_COLUMNS: Final = 8
"""server, device, name, chunks, sm-count, include-remainder, status, visible-uuid. The status is
`configured`, `created` or `unallocated`."""
_DEVICE_COLUMNS: Final = 8
"""Ordinal, Server, PCI ID, Device UUID, Name, Total SMs, Total Chunks, Attributes."""
_PARTITION: Final = "CUDA_MPS_SM_PARTITION="
_STATES: Final = {
    "ready": ServerState.ACTIVE,
    "initializing": ServerState.INITIALIZING,
    "fault": ServerState.FAULT,
}
"""State by status. Only `Ready` is documented (the others: `daemon_v3.py` of the test double). Any
other status is an error, so it does not count as healthy."""


def parse_rows(answer: str, columns: int) -> list[list[str]]:
    """Parse a list with at least this number of columns.

    Raises
    ------
    MPSGarbledError
        A line has fewer columns.
    """
    rows = [line.split(",") for line in answer.splitlines() if line.strip()]
    if any(len(row) < columns for row in rows):
        raise MPSGarbledError(f"not a list with {columns} columns: {answer[:200]!r}")
    return rows


@dataclass(frozen=True, slots=True)
class MPSControlV3(MPSControl):
    """A client of a control daemon with protocol 3, which runs the server `SERVER`."""

    @override
    async def servers(self) -> list[int]:
        """Return the PID of the server; empty if it has exited.

        A server that exits vanishes from the list. Programs that use its directories then run
        without MPS and its limits, unless the GPU's compute mode forbids it.
        """
        return [pid for pid, _ in await self._server_rows()]

    @override
    async def state(self, server: int) -> ServerState:
        for pid, status in await self._server_rows():
            if pid == server:
                if status.lower() not in _STATES:
                    raise MPSGarbledError(f"not a server's status: {status!r}")
                return _STATES[status.lower()]
        raise MPSRefusedError(f"server {server} does not run")

    @override
    async def status(self, server: int) -> tuple[ServerState, list[int]]:
        return await self.state(server), await self.clients(server)

    @override
    async def clients(self, server: int) -> list[int]:
        return [pid for pid, _ in await self.attached()]

    async def attached(self) -> list[tuple[int, str]]:
        """Return PID and namespace of each client."""
        rows = parse_rows(await self.run("client", "list", _OF_SERVER, _CSV), _CLIENT_COLUMNS)
        return [(pid, _namespace(row[3])) for row in rows for pid in parse_pids(row[0])]

    @override
    async def prepare(self, uuid: str, sm_partitions: int) -> tuple[str, ...]:
        """Partition the SMs once the server runs.

        The daemon's configuration contains the server and all limits (`daemon_configuration`).
        """
        if not await self.servers():
            raise MPSRefusedError(f"the server {SERVER} does not run")
        return await self._partition_sms(uuid, sm_partitions) if sm_partitions else ()

    @override
    async def _partition_sms(self, uuid: str, count: int) -> tuple[str, ...]:
        device = f"--device={uuid}"
        answer = await self.run("sm-partition", "list", _OF_SERVER, device, _CSV)
        rows = parse_rows(answer, _PARTITION_COLUMNS)
        made = [f"{uuid}/{row[7]}" for row in rows if row[6] == "created"]
        for number in range(len(made), count):
            chunks = equal_chunks(await self._chunks(uuid), count)
            create = ("sm-partition", "create", slot_namespace(number), _OF_SERVER, device)
            try:
                answer = await self.run(*create, f"--chunks={chunks}")
            except MPSRefusedError as error:
                raise no_partitions(str(error)) from error
            found = [line for line in answer.splitlines() if line.startswith(_PARTITION)]
            if len(found) != 1:
                raise no_partitions(answer)
            made.append(found[0].removeprefix(_PARTITION))
        return tuple(made)

    async def _chunks(self, uuid: str) -> int:
        """Return the number of chunks of SMs of the GPU."""
        rows = parse_rows(await self.run("device", "list", _OF_SERVER, _CSV), _DEVICE_COLUMNS)
        for row in rows:
            if row[3] == uuid and row[6].isascii() and row[6].isdigit():
                return int(row[6])
        raise MPSGarbledError(f"no chunks of {uuid} in {rows!r}")

    @override
    async def terminate(self, server: int, client: int) -> str:
        try:
            await self.run("client", "terminate", str(client))
        except MPSRefusedError as error:
            return str(error)
        return ""

    @override
    async def quit(self) -> None:
        await self.run("-q")

    async def limit(self, namespace: str, limits: NamespaceLimits) -> None:
        """Set the limits of a namespace.

        Raises
        ------
        MPSRefusedError
            The namespace has a client: its limits cannot be changed.
        """
        await self.run(
            *("namespace", "set", namespace, _OF_SERVER),
            f"--pinned-memory-limit={limits.memory}M",
            f"--active-thread-percentage={limits.threads}",
        )

    async def limits(self) -> dict[str, tuple[str, str]]:
        """Return memory limit and thread percentage of each namespace, as the daemon prints them.

        How it prints an amount is not documented, so the texts can only be compared with each
        other.
        """
        answer = await self.run("namespace", "list", _OF_SERVER, _CSV)
        return {row[0]: (row[3], row[4]) for row in parse_rows(answer, _NAMESPACE_COLUMNS)}

    async def run(self, *arguments: str) -> str:
        """Run one command and return its output.

        Raises
        ------
        MPSRefusedError
            The daemon refused the command.
        MPSError
            As for `command`.
        """
        return await self.execute("-p", "3", *arguments)

    async def _server_rows(self) -> list[tuple[int, str]]:
        answer = await self.run("server", "list", _CSV)
        rows = [row for row in parse_rows(answer, _SERVER_COLUMNS) if row[0] == SERVER]
        return [(pid, row[3]) for row in rows for pid in parse_pids(row[2])]


def _namespace(cell: str) -> str:
    """Return the name in a cell such as `server/namespace (ID)` of the list of clients."""
    return cell.partition(" ")[0].rpartition("/")[2]
