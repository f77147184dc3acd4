"""Lets kopf reach the API server as our own client does, and hears what it lists.

Kopf's own way from within a Pod leads to `kubernetes.default.svc`, so it needs the cluster's DNS,
which our client does without; where that fails kopf watches nothing and nobody is told.

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

# Kopf parses each line of a watch by itself. What json.loads cannot take ends all of its watches.
vars(kopf_api)["json"] = SimpleNamespace(loads=parse)


class _Answer(aiohttp.ClientResponse):
    """An answer whose JSON may be nested as deeply as the API server takes it."""

    @override
    async def json(self, **_: Any) -> Any:
        return parse(await self.read())


def log_in(
    registry: kopf.OperatorRegistry, access: Callable[[], Awaitable[Access]], listed: Listed
) -> None:
    """Let kopf reach the API server in a way that is asked for whenever it needs one anew.

    Parameters
    ----------
    listed
        Told the path of each list that kopf has got: it tells its handlers of what is in a list,
        so of an empty one nothing.
    """
    last: tuple[Access, kopf.AiohttpSession] | None = None

    async def login(**_kwargs: Any) -> kopf.AiohttpSession:
        nonlocal last
        found = await access()
        # What was refused and has not changed since kopf is to know again, and not to try for ever.
        if last is None or last[0] != found:
            last = found, _session(connection(found), listed)
        return last[1]

    kopf.on.login(registry=registry)(login)


def connection(access: Access) -> kopf.ConnectionInfo:
    """Return a way to the API server in kopf's words."""
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
    """Make the session that kopf would, with an ear."""
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
