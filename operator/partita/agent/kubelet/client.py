"""Calls kubelet's gRPC services on the node."""

from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import Message
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from partita.agent.errors import KubeletError

__all__ = ["ask_kubelet"]

Answer = TypeVar("Answer", bound=Message)

_DEADLINE: Final = 10.0
"""Seconds for one call."""


async def ask_kubelet(socket: Path, method: str, request: Message, answer: type[Answer]) -> Answer:
    """Call a method and return its answer.

    Parameters
    ----------
    socket
        The socket on which kubelet serves the method.
    method
        Full name, such as `/v1.PodResourcesLister/List`.
    answer
        Type of the answer.

    Raises
    ------
    KubeletError
        kubelet is not there, refused the call or did not answer in time.
    """
    try:
        async with Channel(path=str(socket)) as channel:
            call: UnaryUnaryMethod[Message, Answer] = UnaryUnaryMethod(
                channel, method, type(request), answer
            )
            return await call(request, timeout=_DEADLINE)
    except GRPCError as error:
        raise KubeletError(error.message or error.status.name) from error
    except (ProtocolError, StreamTerminatedError, OSError, TimeoutError) as error:
        raise KubeletError(f"{method}: {error or type(error).__name__}") from error
