"""Requests that a viewer makes to the API server by the console: logs, and changes of jobs.

They are sent with the viewer's own token, so the API server decides about them, and its audit log
names the viewer. `partita console`, whose viewers have no token, reads logs with the rights of its
kubeconfig and changes nothing.
"""

import asyncio
import time
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from partita.console.access import ViewerAccess, token_of
from partita.console.answers import json_answer, refusals, viewers_request
from partita.console.detail_pages import DetailPages
from partita.console.event_streams import EventStream, EventStreams
from partita.console.explanation import Explanation
from partita.console.job_changes import CHANGES, JobChange, RefusedChangeError, write_change
from partita.kube.client import JOBS, PODS, Kube
from partita.kube.connect import connect_as
from partita.kube.errors import ConflictError, KubernetesError
from partita.models import SharedGPUJob

__all__ = ["ViewerRequests"]

_LINES: Final = 1000
"""Last lines of a log that are sent at first."""
_ENDED: Final = "the container has ended, or its node has stopped sending the log"
"""kubelet does not say which."""
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""Annotation of a Pod (https://kubernetes.io/docs/reference/labels-annotations-taints/)."""


class ViewerRequests:
    """Answers by requests to the API server with the viewer's rights.

    Parameters
    ----------
    kube
        The console's own client.
    details
        Finds what a viewer may see.
    most_logs
        Maximum number of logs that are followed at the same time.
    """

    def __init__(
        self, kube: Kube, details: DetailPages, access: ViewerAccess, *, most_logs: int
    ) -> None:
        self._kube = kube
        self._details = details
        self._access = access
        self._logs = EventStreams(kube.times, most_logs)

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Respond with the last lines of a container's log, and with new ones as they come."""
        with refusals():
            found, _ = await self._details.find(request)
            pod, namespace = _pod_of(found, request.query), found.workload.namespace
        async with self._as_viewer(request) as kube:
            with refusals(), viewers_request():
                body = await kube.get(PODS, pod, namespace)
            names = [str(one["name"]) for one in body["spec"]["containers"]]
            default = (body["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
            first = default if default in names else names[0]
            container = request.query.get("container", first)
            lines = kube.log(pod, namespace, container, follow=True, tail=_LINES)
            async with self._logs.open(request) as stream:
                await stream.send("log", {"container": container, "containers": names})
                await stream.send("end", {"why": await self._follow(request, stream, lines)})
        return stream.response

    async def _follow(
        self, request: web.Request, stream: EventStream, lines: AsyncIterator[bytes]
    ) -> str:
        """Send what comes of a log; return why no more comes.

        The API server decides about a log only when it is opened. So the viewer's rights are
        checked again as those to the page are.
        """
        decode, clock = getincrementaldecoder("utf-8")("replace").decode, time.monotonic
        silence = self._kube.times.stream_silence
        check_at = clock() + silence
        coming = asyncio.ensure_future(anext(lines, b""))
        try:
            while True:
                await asyncio.wait((coming,), timeout=check_at - clock())
                if clock() >= check_at:
                    with refusals():
                        await self._details.find(request)
                    await stream.send("still", {})
                    check_at = clock() + silence
                elif chunk := await coming:
                    coming = asyncio.ensure_future(anext(lines, b""))
                    await stream.send("text", {"text": decode(chunk)})
                else:
                    return _ENDED
        except web.HTTPException as error:
            return error.text or error.reason
        except KubernetesError as error:
            return "the Pod has no node yet" if error.status == 204 else error.message
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def change(self, request: web.Request) -> web.Response:
        """Suspend, resume or retry a job."""
        _only_from_the_page(request)
        if not self._access.asks:
            raise web.HTTPForbidden(text="this console has no token of yours: use the command")
        change = next((one for one in CHANGES if one == request.query.get("change")), None)
        with refusals():
            found, _ = await self._details.find(request)
            if found.job is None or change is None:
                raise web.HTTPBadRequest(text=f"write kind=job, and change={'|'.join(CHANGES)}")
            with viewers_request():
                async with self._as_viewer(request) as kube:
                    await _change(kube, change, found.job)
        return json_answer({})

    @asynccontextmanager
    async def _as_viewer(self, request: web.Request) -> AsyncIterator[Kube]:
        if not self._access.asks:
            yield self._kube
            return
        token = token_of(request.headers.get("Authorization", ""))
        async with connect_as(self._kube.api, token) as api:
            yield Kube(api, times=self._kube.times)


def _pod_of(found: Explanation, query: Mapping[str, str]) -> str:
    """Return the Pod that a request names, or the last one."""
    pods = [name for name in (*(one.pod for one in found.attempts), found.workload.pod) if name]
    pod = query.get("pod", pods[-1] if pods else "")
    if pod not in pods:
        raise web.HTTPNotFound(text=f"it has no Pod {pod}" if pod else "it has no Pod yet")
    return pod


async def _change(kube: Kube, change: JobChange, seen: SharedGPUJob) -> None:
    """Write a change, unless the job's newest version does not allow it."""
    meta = seen.metadata
    try:
        await write_change(kube, change, await kube.get(JOBS, meta.name, meta.namespace))
    except RefusedChangeError as error:
        raise web.HTTPConflict(text=str(error)) from None
    except ConflictError:
        text = f"{seen.key} has just been changed: look at it, and try again"
        raise web.HTTPConflict(text=text) from None


def _only_from_the_page(request: web.Request) -> None:
    """Refuse what another site could send, if a proxy in front of the console adds the token.

    A browser sends JSON to another site only if that allows it, which the console does not
    (https://fetch.spec.whatwg.org/#cors-preflight-fetch).
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="write JSON, with Content-Type: application/json")
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise web.HTTPForbidden(text="only the console's own page may change something")
