"""Lets kopf connect to the API server like Partita's own client, and reports what kopf lists.

Inside a Pod kopf itself connects to `kubernetes.default.svc`, so it needs the cluster's DNS, which
Partita's client does not use. If DNS fails, kopf watches nothing and reports no error.

Source: kopf's documentation, "Authentication", "Custom HTTP sessions".
"""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
from kopf._cogs.clients import api as kopf_api
from typing_extensions import override

from partita.kube.connect import Access
from partita.models.json_text import parse

__all__ = ["connection", "log_in"]

Listed = Callable[[str], None]

# kopf parses each line of a watch itself. A line that json.loads cannot parse ends all its watches.
vars(kopf_api)["json"] = SimpleNamespace(loads=parse)


class _Answer(aiohttp.ClientResponse):
    """A response whose JSON may be nested as deeply as the API server allows."""

    @override
    async def json(self, **_: Any) -> Any:
        return parse(await self.read())


def log_in(
    registry: kopf.OperatorRegistry, access: Callable[[], Awaitable[Access]], listed: Listed
) -> None:
    """Register a login handler that returns current access data whenever kopf needs it.

    Parameters
    ----------
    listed
        Called with the path of each list that kopf has read. kopf calls its handlers only for the
        items of a list, so they are not called for an empty list.
    """
    last: tuple[Access, kopf.AiohttpSession] | None = None

    async def login(**_kwargs: Any) -> kopf.AiohttpSession:
        nonlocal last
        found = await access()
        # Unchanged access data must be the same object: so kopf recognises data that was refused
        # before and does not retry for ever.
        if last is None or last[0] != found:
            last = found, _session(connection(found), listed)
        return last[1]

    kopf.on.login(registry=registry)(login)


def connection(access: Access) -> kopf.ConnectionInfo:
    """Convert access data to kopf's connection information."""
    scheme, _, token = access.authorization.partition(" ")
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.authority,
        insecure=not access.verified,
        certificate_path=access.certificate,
        private_key_path=access.key,
        scheme=scheme.title() or None,
        token=token or None,
        proxy_url=access.proxy,
    )


def _session(to: kopf.ConnectionInfo, listed: Listed) -> kopf.AiohttpSession:
    """Create the same session as kopf, with a trace of its list requests."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=to.as_ssl_context()),  # many watches
        headers=to.as_http_headers(),
        proxy=to.proxy_url,
        trace_configs=[_ear(listed)],
        response_class=_Answer,
    )
    return kopf.AiohttpSession(server=to.server, aiohttp_session=session)


def _ear(listed: Listed) -> aiohttp.TraceConfig:
    async def ended(_session: Any, _context: Any, request: aiohttp.TraceRequestEndParams) -> None:
        url = request.url
        if request.method == "GET" and "watch" not in url.query and request.response.ok:
            listed(url.path)

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(ended)
    return trace
