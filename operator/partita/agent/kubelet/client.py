"""Calls gRPC services on the node: those of kubelet, and those of other agents."""

import asyncio
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import Message
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from partita.agent.errors import KubeletError

__all__ = ["accepts_connections", "call_service"]

Answer = TypeVar("Answer", bound=Message)

_DEADLINE: Final = 10.0
"""Seconds for one call."""


async def accepts_connections(socket: Path) -> bool:
    """Return whether a process listens on a socket."""
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True


async def call_service(
    socket: Path, method: str, request: Message, answer: type[Answer], deadline: float = _DEADLINE
) -> Answer:
    """Call a method and return its answer.

    Parameters
    ----------
    socket
        The socket on which the method is served.
    method
        Full name, such as `/v1.PodResourcesLister/List`.
    answer
        Type of the answer.
    deadline
        Seconds for the call.

    Raises
    ------
    KubeletError
        Nobody serves the method there, or the call was refused or not answered in time.
    """
    try:
        async with Channel(path=str(socket)) as channel:
            call: UnaryUnaryMethod[Message, Answer] = UnaryUnaryMethod(
                channel, method, type(request), answer
            )
            return await call(request, timeout=deadline)
    except GRPCError as error:
        raise KubeletError(error.message or error.status.name) from error
    except (ProtocolError, StreamTerminatedError, OSError, TimeoutError) as error:
        raise KubeletError(f"{method}: {error or type(error).__name__}") from error
