"""The client of the Kubernetes API: JSON requests with retries and a count of writes.

It uses the configuration and the REST client of `kubernetes.aio`, but not its generated model
classes. These take milliseconds per object, while Partita's models parse JSON directly.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
import structlog
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException

from partita.kube.authorization import authorize
from partita.kube.errors import (
    FencedError,
    KubernetesError,
    UnavailableError,
    from_response,
    unanswered,
)
from partita.kube.fence import fenced, may_send
from partita.kube.kinds import (
    BUDGETS,
    CLAIM_TEMPLATES,
    CLAIMS,
    CONFIG_MAPS,
    CRDS,
    DEVICE_CLASSES,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PARTITIONS,
    PODS,
    PROFILES,
    RESOURCE_SLICES,
    SERVERS,
    Kind,
)
from partita.kube.pages import ListPage, pages
from partita.kube.streams import stream
from partita.kube.turns import Turns
from partita.models.json_text import parse
from partita.times import Times

__all__ = [
    "BUDGETS",
    "CLAIMS",
    "CLAIM_TEMPLATES",
    "CONFIG_MAPS",
    "CRDS",
    "DEVICE_CLASSES",
    "EVENTS",
    "JOBS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PARTITIONS",
    "PODS",
    "PROFILES",
    "RESOURCE_SLICES",
    "SERVERS",
    "Kind",
    "Kube",
]

Json = dict[str, Any]

_ATTEMPTS = 6
"""Attempts of one request."""
_MAX_DELAY = 5.0
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=35, sock_connect=5)
"""Longer than the maximum duration of an admission webhook (30 s, `timeoutSeconds`), so that the
API server reports which webhook did not respond."""

_UNREPORTED = {"fieldValidation": "Ignore"}
"""Parameters of writes. By default the API server decodes each body in a slower way to warn about
unknown and duplicate fields, and nobody would read the warnings
(https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation)."""


def _always() -> bool:
    return True


@dataclass(eq=False)
class Kube:
    """A client of one API server.

    Requests that fail because of overload, timeouts or broken connections are repeated a limited
    number of times with increasing delays. All requests of Partita can be repeated: names are
    fixed, patches are absolute, and a repeated write with a precondition at worst reports a
    conflict.

    Parameters
    ----------
    api
        The configured client; the caller closes it.
    may_write
        The fence of the Lease. It is called before each write and again when its body is sent
        (`kube.fence`). If it returns False, nothing is written.
    times
        The pause after the first failure of a request, and the duration of a watch.
    manager
        Name of this program: the manager of the fields that it writes
        (https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers), and its name
        in audit logs.
    """

    api: ApiClient
    may_write: Callable[[], bool] = _always
    times: Times = Times()
    manager: str = "partita"

    def __post_init__(self) -> None:
        self.writes: Counter[tuple[str, str]] = Counter()
        """Number of writes, by verb and plural."""
        self.turns = Turns()
        """Of those who read and process what the watches report."""
        self._log = structlog.get_logger().bind(part="kube")

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> tuple[list[Json], str]:
        """Return all objects and the resource version of the list.

        Raises
        ------
        KubernetesError
            If a page fails. An incomplete list is never returned.
        """
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        query = {name: text for name, text in selectors.items() if text}
        items: list[Json] = []
        version = ""
        async for page in self.pages(kind, namespace=namespace, query=query):
            if page.first:
                items.clear()
            items += page.items
            version = page.version
        return items, version

    def pages(
        self, kind: Kind, *, namespace: str = "", query: Mapping[str, str] | None = None
    ) -> AsyncIterator[ListPage]:
        """Yield all objects page by page (`kube.pages`)."""
        path = kind.path(namespace=namespace)
        return pages(lambda page: self.request("GET", path, query=page), dict(query or {}))

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Json:
        """Return one object.

        Raises
        ------
        NotFoundError
            If the object does not exist.
        """
        return await self.request("GET", kind.path(name, namespace))

    async def log(
        self, name: str, namespace: str, container: str, *, follow: bool = False, tail: int | None
    ) -> AsyncIterator[bytes]:
        """Yield the log of a Pod's container.

        Parameters
        ----------
        follow
            Continue until the container ends.
        tail
            Number of earlier lines; None for all.

        Raises
        ------
        KubernetesError
            If the log does not exist (yet), or reading it is not permitted.
        """
        query = {"container": container, "follow": str(follow).lower()}
        if tail is not None:
            query["tailLines"] = str(tail)
        path = PODS.path(name, namespace, "log")
        # A program may print nothing for hours.
        async with stream(self.api, f"GET {path}", path, query, seconds=None) as content:
            async for chunk in content.iter_any():
                yield chunk

    async def create(self, kind: Kind, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object.

        Parameters
        ----------
        dry_run
            Only admit and validate the object.

        Raises
        ------
        AlreadyExistsError
            If an object of that name exists, possibly from an earlier attempt of this call.
        """
        namespace = body["metadata"].get("namespace", "") if kind.namespaced else ""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        path = kind.path(namespace=namespace)
        if dry_run:
            query = {"dryRun": "All", **self._parameters()}
            return await self.request("POST", path, query=query, body=body)
        return await self._write("create", kind, "POST", path, body=body)

    async def replace(self, kind: Kind, body: Json) -> Json:
        """Write a whole object; its resource version is a precondition.

        Raises
        ------
        ConflictError
            If the object was written since it was read.
        """
        meta = body["metadata"]
        path = kind.path(meta["name"], meta.get("namespace", ""))
        return await self._write("update", kind, "PUT", path, body=body)

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        subresource: str = "",
        resource_version: str = "",
    ) -> Json:
        """Merge a patch (RFC 7386) into an object.

        Parameters
        ----------
        resource_version
            A precondition: the patch is applied only if the object still has this version.

        Raises
        ------
        NotFoundError
            If the object does not exist.
        ConflictError
            If the precondition does not hold.
        """
        if resource_version:
            meta = {**patch.get("metadata", {}), "resourceVersion": resource_version}
            patch = {**patch, "metadata": meta}
        verb = f"patch/{subresource}" if subresource else "patch"
        path = kind.path(name, namespace, subresource)
        return await self._write(verb, kind, "PATCH", path, body=patch)

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str = "", grace: int | None = None
    ) -> None:
        """Delete an object.

        Parameters
        ----------
        uid
            A precondition: another object of the same name is not deleted.
        grace
            Grace period in seconds, instead of that in the Pod's spec. It can shorten the grace
            period of a Pod that is already being deleted, but not extend it. With 0 the deletion
            does not wait for the node, as is necessary if the node no longer exists.

        Raises
        ------
        NotFoundError
            If the object does not exist.
        ConflictError
            If another object has its name.
        """
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options["propagationPolicy"] = "Background"
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        await self._write("delete", kind, "DELETE", kind.path(name, namespace), body=options)

    async def evict(self, name: str, namespace: str, *, uid: str, grace: int | None = None) -> None:
        """Evict a Pod, which its PodDisruptionBudgets may forbid; `grace` in seconds.

        Raises
        ------
        UnavailableError
            With status 429 if a PodDisruptionBudget protects the Pod; 500 if several do.
        ConflictError
            If another Pod has its name.
        """
        seconds = {} if grace is None else {"gracePeriodSeconds": grace}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}, **seconds},
        }
        path = PODS.path(name, namespace, "eviction")
        self.writes["create/eviction", PODS.plural] += 1
        await self.request("POST", path, body=body, attempts=1)

    def _parameters(self) -> dict[str, str]:
        """Return the parameters of a write."""
        return {**_UNREPORTED, "fieldManager": self.manager}

    async def _write(self, verb: str, kind: Kind, method: str, path: str, *, body: Json) -> Json:
        self.writes[verb, kind.plural] += 1
        query = self._parameters() if method != "DELETE" else None
        return await self.request(method, path, query=query, body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        attempts: int = _ATTEMPTS,
    ) -> Json:
        """Send a request; a PATCH is a JSON merge patch.

        Raises
        ------
        KubernetesError
            If the last attempt fails.
        """
        url = f"{self.api.configuration.host}{path}"
        if query:
            url += f"?{urlencode(query)}"
        headers = {
            "Accept": "application/json",
            "Content-Type": f"application/{'merge-patch+' if method == 'PATCH' else ''}json",
            "User-Agent": self.manager,
        }
        delay = self.times.request_pause
        for attempt in range(1, attempts + 1):
            try:
                return await self._once(f"{method} {path}", method, url, headers, body)
            except FencedError:
                raise
            except UnavailableError as error:
                if attempt == attempts:
                    raise
                wait = min(error.retry_after or random.uniform(delay / 2, delay), _MAX_DELAY)  # noqa: S311 - jitter
                self._log.info("retrying", request=error.what, error=error.message, after=wait)
                await asyncio.sleep(wait)
                delay = min(delay * 3, _MAX_DELAY)
        raise AssertionError  # the loop returns or raises

    async def _once(
        self, what: str, method: str, url: str, headers: dict[str, str], body: Json | None
    ) -> Json:
        if method != "GET" and not (self.may_write() and may_send()):
            raise FencedError(what, 0, "this process is not the leader, or the write is obsolete")
        headers = dict(headers)  # a token may be renewed between two attempts
        try:
            await authorize(self.api, headers, method)
            with fenced(self.may_write if method != "GET" else _always):
                response = await self.api.rest_client.request(  # type: ignore[no-untyped-call]
                    method, url, headers=headers, body=body, _request_timeout=_REQUEST_TIMEOUT
                )
                data = await response.read()
        except ApiException as error:
            status = error.status or 0
            raise KubernetesError(what, status, str(error.reason)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unanswered(what, error) from error
        if not 200 <= response.status < 300:
            raise from_response(what, response.status, data, response.getheader("Retry-After"))
        try:
            result = parse(data)
        except orjson.JSONDecodeError:
            result = None
        if not isinstance(result, dict):
            # The answer is from another program, such as a proxy. This may be temporary.
            text = "the answer is no JSON object"
            raise UnavailableError(what, response.status, text)
        return result
