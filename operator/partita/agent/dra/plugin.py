"""The kubelet plugin of the DRA driver: kubelet asks it to prepare and unprepare claims.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/. kubelet asks
one of the node's agents, which may serve another GPU than those of the claim. It has each device of
the claim prepared by the agent of its GPU. So each agent prepares only devices on its own GPU.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import structlog
from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from partita.agent.dra.device import allocated_devices
from partita.agent.dra.prepare import PreparedClaims
from partita.agent.dra.registration import DeviceHealthService, Registration
from partita.agent.dra.socket_server import serve
from partita.agent.dra.sockets import DriverSockets
from partita.agent.errors import KubeletError, PrepareError, TransientPrepareError
from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.kubelet.client import call_service
from partita.constants import DRIVER
from partita.kube.client import CLAIMS

__all__ = ["DRAPlugin"]

T = TypeVar("T", bound=Message)

_Call: TypeAlias = Stream[Any, Any]
_Prepare: TypeAlias = Callable[[api.Claim], Awaitable[api.PreparedClaim]]
_Unprepare: TypeAlias = Callable[[api.Claim], Awaitable[None]]
_SERVICE: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_PREPARE: Final = f"{_SERVICE}/NodePrepareResources"
_UNPREPARE: Final = f"{_SERVICE}/NodeUnprepareResources"
_PREPARE_HERE: Final = f"/{DRIVER}/PrepareDevice"
_UNPREPARE_HERE: Final = f"/{DRIVER}/UnprepareDevice"
"""The same for the device of a claim on the GPU of the agent that is asked, by other agents."""
_ANSWER_WITHIN: Final = 42.0
"""Seconds for the answer to kubelet, which waits 45 s (`defaultClientCallTimeout` in
pkg/kubelet/cm/dra/plugin/dra_plugin.go). Another agent of the node that prepares the claim needs up
to `AgentTimes.prepare_within` of it."""

_UNPREPARE_WITHIN: Final = 10.0
"""Seconds for another agent to unprepare a device. Without an answer its file is removed."""


@dataclass
class DRAPlugin:
    """Prepares claims for kubelet until it is cancelled.

    Parameters
    ----------
    claims
        The claims of a GPU.
    before_end
        Called before kubelet learns that a claim of the GPU is unprepared, after which it reports
        the end of the claim's Pod.
    """

    claims: PreparedClaims
    before_end: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._server, self.times = self.claims.server, self.claims.times
        self.sockets = DriverSockets(self.claims.settings.kubelet)
        self.registration = Registration(self.sockets.service(self._server))
        self.health = DeviceHealthService(self._server, self.times)
        self._log = structlog.get_logger(__name__).bind(server=self._server)

    async def run(self) -> NoReturn:
        """Serve until cancelled."""
        service = self.sockets.service(self._server)
        registration = self.sockets.registration(self._server)
        while True:
            try:
                async with (
                    serve(service, self, self.health),
                    serve(registration, self.registration),
                ):
                    while service.exists() and registration.exists():  # noqa: ASYNC110
                        await asyncio.sleep(self.times.sockets_every)
            except OSError as error:
                self._log.warning("DRA driver not served", error=str(error))
                await asyncio.sleep(self.times.sockets_every)

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of the service's methods, for grpclib."""
        prepare, unprepare = api.PrepareResponse, api.UnprepareResponse
        return {
            _PREPARE: _handler(partial(self._prepare, self._prepare_all), prepare),
            _PREPARE_HERE: _handler(partial(self._prepare, self._prepare_here), prepare),
            _UNPREPARE: _handler(partial(self._unprepare, self._unprepare_all), unprepare),
            _UNPREPARE_HERE: _handler(partial(self._unprepare, self._unprepare_here), unprepare),
        }

    async def _prepare(self, prepare: _Prepare, asked: api.Claim) -> api.PreparedClaim:
        """Prepare a claim; repeat it for a limited time if it cannot be prepared now."""
        name = f"ResourceClaim {asked.namespace}/{asked.name}"
        until = time.monotonic() + self.times.prepare_within
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                while True:
                    try:
                        return await prepare(asked)
                    except TransientPrepareError:
                        if time.monotonic() >= until:
                            raise
                    await asyncio.sleep(self.times.prepare_retry)
        except PrepareError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"it was not prepared within {_ANSWER_WITHIN:g} s"
        self._log.warning("claim not prepared", claim=name, error=problem)
        return api.PreparedClaim(error=f"{name}: {problem}")

    async def _unprepare(self, unprepare: _Unprepare, asked: api.Claim) -> api.UnpreparedClaim:
        try:
            await unprepare(asked)
        except PrepareError as error:
            return api.UnpreparedClaim(error=str(error))
        return api.UnpreparedClaim()

    async def _prepare_all(self, asked: api.Claim) -> api.PreparedClaim:
        """Have each device of a claim prepared by the agent of its GPU."""
        claim = await self._read(asked)
        parts = await asyncio.gather(
            *(
                self._prepare_own(claim, result)
                if server == self._server
                else self._forward_prepare(asked, server)
                for server, result in allocated_devices(claim).items()
            ),
            return_exceptions=True,  # the claim is not tried again before all have answered
        )
        devices = []
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            if part.error:
                return part
            devices += part.devices
        return api.PreparedClaim(devices=devices)

    async def _prepare_here(self, asked: api.Claim) -> api.PreparedClaim:
        """Prepare the device of a claim on this GPU for another agent."""
        claim = await self._read(asked)
        result = allocated_devices(claim).get(self._server)
        if result is None:
            raise PrepareError(f"it has no GPU of GPUServer {self._server}")
        return await self._prepare_own(claim, result)

    async def _prepare_own(
        self, claim: Mapping[str, Any], result: Mapping[str, Any]
    ) -> api.PreparedClaim:
        device, cdi = await self.claims.prepare(claim)
        prepared = api.PreparedDevice(
            request_names=[result["request"]],
            pool_name=device.server,
            device_name=result["device"],
            cdi_device_ids=cdi,
            share_id=result.get("shareID"),
        )
        return api.PreparedClaim(devices=[prepared])

    async def _read(self, asked: api.Claim) -> Mapping[str, Any]:
        """Read the claim that kubelet asks for.

        Raises
        ------
        PrepareError
            It cannot be read, or is another one.
        """
        name, namespace, gone = asked.name, asked.namespace, "does not exist any more"
        claim = await self.claims.read(CLAIMS, name, namespace, "it", gone)
        if claim["metadata"]["uid"] != asked.uid:
            raise PrepareError(f"it is another one now: its UID is not {asked.uid}")
        return claim

    async def _forward_prepare(self, asked: api.Claim, server: str) -> api.PreparedClaim:
        try:
            answer = await self._ask(
                server, _PREPARE_HERE, asked, api.PrepareResponse, _ANSWER_WITHIN
            )
        except KubeletError as error:
            raise TransientPrepareError(
                f"it has a GPU of GPUServer {server}, whose agent {error}"
            ) from error
        prepared: api.PreparedClaim = answer.claims[asked.uid]
        return prepared

    async def _ask(
        self, server: str, method: str, asked: api.Claim, answer: type[T], deadline: float
    ) -> T:
        """Ask the agent of a GPUServer about a claim.

        Raises
        ------
        KubeletError
            It does not answer; the message goes on after "the agent".
        """
        socket = self.sockets.of_agent(server)
        if socket is None:
            raise KubeletError("does not run on this node")
        request = api.ClaimsRequest(claims=[asked])
        try:
            return await call_service(socket, method, request, answer, deadline)
        except KubeletError as error:
            raise KubeletError(f"does not answer: {error}") from error

    async def _unprepare_all(self, asked: api.Claim) -> None:
        """Have the devices of a claim unprepared by the agents of their GPUs."""
        servers = {device.server for device in self.claims.folder.devices(asked.uid)}
        for server in servers - {self._server}:
            try:
                await self._ask(
                    server, _UNPREPARE_HERE, asked, api.UnprepareResponse, _UNPREPARE_WITHIN
                )
            except KubeletError:
                # The file is all that is left of the device.
                self.claims.folder.remove(asked.uid, server)
        if not servers or self._server in servers:
            await self._unprepare_here(asked)

    async def _unprepare_here(self, asked: api.Claim) -> None:
        self.claims.unprepare(asked.uid)
        await self.before_end()


def _handler(answer: Callable[[api.Claim], Awaitable[Any]], response: type[Any]) -> Handler:
    """Return the handler of a method that answers for each of several claims."""

    async def handle(call: _Call) -> None:
        request = await call.recv_message()
        claims = request.claims if request is not None else ()
        answers = await asyncio.gather(*map(answer, claims))
        found = {claim.uid: one for claim, one in zip(claims, answers, strict=True)}
        await call.send_message(response(claims=found))

    return Handler(handle, Cardinality.UNARY_UNARY, api.ClaimsRequest, response)
