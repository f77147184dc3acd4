"""The kubelet plugin of the DRA driver: kubelet asks it to prepare and unprepare claims.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/. kubelet asks
one of the node's agents, which may serve another GPU than that of the claim. It passes the request
on to the agent of that GPU, which has the same service. So each agent prepares only claims on its
own GPU.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeAlias

import structlog
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from partita.agent.dra.allocation import allocated_device
from partita.agent.dra.cdi import CDIFolder, is_uid
from partita.agent.dra.health import DeviceHealthService
from partita.agent.dra.prepare import PreparedClaims
from partita.agent.dra.registration import Registration
from partita.agent.dra.socket_server import serve
from partita.agent.dra.sockets import DriverSockets
from partita.agent.errors import KubeletError, PrepareError, TransientPrepareError
from partita.agent.kubelet import kubelet_pb2 as api
from partita.agent.kubelet.client import call_service
from partita.agent.times import AgentTimes
from partita.kube.client import CLAIMS, Kube
from partita.kube.errors import KubernetesError, NotFoundError

__all__ = ["DRAPlugin"]

_Call: TypeAlias = Stream[Any, Any]
_SERVICE: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_PREPARE: Final = f"{_SERVICE}/NodePrepareResources"
_UNPREPARE: Final = f"{_SERVICE}/NodeUnprepareResources"
_ANSWER_WITHIN: Final = 42.0
"""Seconds for the answer to kubelet, which waits 45 s (`defaultClientCallTimeout` in
pkg/kubelet/cm/dra/plugin/dra_plugin.go). Another agent of the node that prepares the claim needs up
to `AgentTimes.prepare_within` of it."""


class DRAPlugin:
    """Prepares claims for kubelet until it is cancelled.

    Parameters
    ----------
    kube
        The API server.
    server
        The GPUServer.
    claims
        The claims of its GPU.
    folder
        The CDI files of the node.
    sockets
        The sockets of the node's agents.
    before_end
        Called before kubelet learns that a claim of the GPU is unprepared, after which it reports
        the end of the claim's Pod.
    times
        How long it waits.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        server: str,
        claims: PreparedClaims,
        folder: CDIFolder,
        sockets: DriverSockets,
        before_end: Callable[[], Awaitable[None]],
        times: AgentTimes,
    ) -> None:
        self._times = times
        self._kube = kube
        self._server = server
        self._claims = claims
        self._folder = folder
        self._sockets = sockets
        self._before_end = before_end
        self._registration = Registration(sockets.service(server))
        self.health = DeviceHealthService(server, times)
        self._log = structlog.get_logger(__name__).bind(server=server)

    @property
    def is_registered(self) -> bool:
        """Whether kubelet has accepted the driver."""
        return self._registration.registered

    async def run(self) -> NoReturn:
        """Serve until cancelled."""
        service = self._sockets.service(self._server)
        registration = self._sockets.registration(self._server)
        while True:
            try:
                async with (
                    serve(service, self, self.health),
                    serve(registration, self._registration),
                ):
                    while service.exists() and registration.exists():  # noqa: ASYNC110
                        await asyncio.sleep(self._times.sockets_every)
            except OSError as error:
                self._log.warning("DRA driver not served", error=str(error))
                await asyncio.sleep(self._times.sockets_every)

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of the service's methods, for grpclib."""
        once = Cardinality.UNARY_UNARY
        return {
            _PREPARE: Handler(self._prepare, once, api.ClaimsRequest, api.PrepareResponse),
            _UNPREPARE: Handler(self._unprepare, once, api.ClaimsRequest, api.UnprepareResponse),
        }

    async def _prepare(self, call: _Call) -> None:
        request = await call.recv_message()
        claims = request.claims if request is not None else ()
        done = await asyncio.gather(*map(self._prepare_claim, claims))
        found = {claim.uid: one for claim, one in zip(claims, done, strict=True)}
        await call.send_message(api.PrepareResponse(claims=found))

    async def _prepare_claim(self, asked: api.Claim) -> api.PreparedClaim:
        name = f"ResourceClaim {asked.namespace}/{asked.name}"
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await self._repeat(asked)
        except PrepareError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"it was not prepared within {_ANSWER_WITHIN:g} s"
        self._log.warning("claim not prepared", claim=name, error=problem)
        return api.PreparedClaim(error=f"{name}: {problem}")

    async def _repeat(self, asked: api.Claim) -> api.PreparedClaim:
        """Prepare a claim; repeat it for a limited time if it cannot be prepared now.

        Raises
        ------
        PrepareError
            It cannot be prepared.
        """
        until = time.monotonic() + self._times.prepare_within
        while True:
            try:
                return await self._prepared(asked)
            except TransientPrepareError:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(self._times.prepare_retry)

    async def _prepared(self, asked: api.Claim) -> api.PreparedClaim:
        claim = await self._read(asked)
        result = allocated_device(claim)
        if result.get("pool") != self._server:
            return await self._forward_prepare(asked, str(result.get("pool")))
        device, cdi = await self._claims.prepare(claim)
        prepared = api.PreparedDevice(
            request_names=[result["request"]],
            pool_name=device.server,
            device_name=result["device"],
            cdi_device_ids=cdi,
            share_id=result.get("shareID"),
        )
        return api.PreparedClaim(devices=[prepared])

    async def _read(self, asked: api.Claim) -> dict[str, Any]:
        """Read the claim that kubelet asks for.

        Raises
        ------
        PrepareError
            It cannot be read, or is another one.
        """
        if not is_uid(asked.uid):
            raise PrepareError(f"{asked.uid!r} is not a UID")
        try:
            claim = await self._kube.get(CLAIMS, asked.name, asked.namespace)
        except NotFoundError:
            raise PrepareError("it does not exist any more") from None
        except KubernetesError as error:
            raise TransientPrepareError(f"it cannot be read: {error}") from error
        if claim["metadata"]["uid"] != asked.uid:
            raise PrepareError(f"it is another one now: its UID is not {asked.uid}")
        return claim

    async def _forward_prepare(self, asked: api.Claim, server: str) -> api.PreparedClaim:
        socket = self._sockets.of_agent(server)
        if socket is None:
            raise TransientPrepareError(
                f"it has a GPU of GPUServer {server}, whose agent does not run on this node"
            )
        request = api.ClaimsRequest(claims=[asked])
        try:
            answer = await call_service(
                socket, _PREPARE, request, api.PrepareResponse, deadline=_ANSWER_WITHIN
            )
        except KubeletError as error:
            raise TransientPrepareError(
                f"the agent of GPUServer {server} does not answer: {error}"
            ) from error
        prepared: api.PreparedClaim = answer.claims[asked.uid]
        return prepared

    async def _unprepare(self, call: _Call) -> None:
        request = await call.recv_message()
        claims = request.claims if request is not None else ()
        found = {claim.uid: await self._unprepare_claim(claim) for claim in claims}
        await call.send_message(api.UnprepareResponse(claims=found))

    async def _unprepare_claim(self, asked: api.Claim) -> api.UnpreparedClaim:
        if not is_uid(asked.uid):
            return api.UnpreparedClaim(error=f"{asked.uid!r} is not a UID")
        device = self._folder.read(asked.uid)
        socket = None
        if device is not None and device.server != self._server:
            socket = self._sockets.of_agent(device.server)
        if socket is not None:
            request = api.ClaimsRequest(claims=[asked])
            # If the other agent is gone, the file is all that is left of the claim.
            with suppress(KubeletError):
                answer = await call_service(socket, _UNPREPARE, request, api.UnprepareResponse)
                unprepared: api.UnpreparedClaim = answer.claims[asked.uid]
                return unprepared
        self._claims.unprepare(asked.uid)
        await self._before_end()
        return api.UnpreparedClaim()
