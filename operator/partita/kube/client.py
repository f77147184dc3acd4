"""The only way to the Kubernetes API: JSON in and out, retries, and a count of writes.

It stands on `kubernetes.aio`, of which it uses the configuration and the REST client. The
generated model classes are left out: they cost milliseconds an object, and our own models
read JSON directly.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import orjson
import structlog
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException

from partita.constants import GROUP, VERSION
from partita.kube.errors import (
    FencedError,
    GoneError,
    KubernetesError,
    UnavailableError,
    from_response,
)
from partita.kube.fence import fenced, may_send
from partita.kube.streams import stream
from partita.models.json_text import parse

__all__ = [
    "BUDGETS",
    "CRDS",
    "EVENTS",
    "JOBS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PAGE",
    "PARTITIONS",
    "PODS",
    "PROFILES",
    "SERVERS",
    "Kind",
    "Kube",
]

Json = dict[str, Any]

PAGE = 500
"""Objects asked for at once in a list, as kubectl does."""
_ATTEMPTS = 6
"""Tries of one request; with the delays below the last is made after about 6 s."""
_FIRST_DELAY = 0.1
_MAX_DELAY = 5.0
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=35, sock_connect=5)
"""Longer than an admission webhook may take (30 s at most, `timeoutSeconds`), so that the API
server says which one did not answer."""

_ONLY_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource of the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """URL path of the collection, or of one object."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts.append(f"namespaces/{quote(namespace)}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PARTITIONS = Kind(GROUP, VERSION, "gpupartitions", "GPUPartition", namespaced=False)
SERVERS = Kind(GROUP, VERSION, "gpuservers", "GPUServer", namespaced=False)
JOBS = Kind(GROUP, VERSION, "sharedgpujobs", "SharedGPUJob", namespaced=True)
PROFILES = Kind(GROUP, VERSION, "applicationprofiles", "ApplicationProfile", namespaced=True)
PODS = Kind("", "v1", "pods", "Pod", namespaced=True)
NODES = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Kind("", "v1", "events", "Event", namespaced=True)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
CRDS = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)


def _always() -> bool:
    return True


class Kube:
    """A client of one API server.

    Requests that overload, timeouts or broken connections turned away are repeated, a bounded
    number of times and ever more slowly. All of ours may be repeated: names are fixed, patches
    are absolute, and a repeated write with a precondition at worst reports a conflict.

    Parameters
    ----------
    api
        The configured client; the caller closes it.
    may_write
        Asked before each write, and again in the moment in which it is sent (`kube.fence`); when it
        says no the write is not made. The lease's fence.
    """

    def __init__(self, api: ApiClient, *, may_write: Callable[[], bool] = _always) -> None:
        self.api = api
        self._may_write = may_write
        self.writes: Counter[tuple[str, str]] = Counter()
        """Writes made, by verb and plural."""
        self._log = structlog.get_logger().bind(part="kube")

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        accept: str = "application/json",
    ) -> tuple[list[Json], str]:
        """Return all objects and the resource version of the list.

        Where the pages that were begun are no longer to be had, the list is asked for in one
        piece, as client-go's pager does.

        Raises
        ------
        KubernetesError
            If any page of it failed: a part of a list is never taken for the whole.
        """
        items: list[Json] = []
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        query = {"limit": str(PAGE)} | {name: text for name, text in selectors.items() if text}
        while True:
            path = kind.path(namespace=namespace)
            try:
                page = await self._request("GET", path, query=query, accept=accept)
            except GoneError:
                if "continue" not in query:
                    raise
                items.clear()
                del query["continue"], query["limit"]
                continue
            items += page.get("items") or []
            meta = page.get("metadata", {})
            if not meta.get("continue"):
                return items, meta.get("resourceVersion", "")
            query["continue"] = meta["continue"]

    async def uids(self, kind: Kind, *, label_selector: str = "") -> tuple[set[str], str]:
        """Return the UIDs of all objects and the resource version of the list.

        Only metadata is asked for, where the server can leave out the rest.
        """
        items, version = await self.list(kind, label_selector=label_selector, accept=_ONLY_METADATA)
        return {item["metadata"]["uid"] for item in items}, version

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Json:
        """Return one object.

        Raises
        ------
        NotFoundError
            If it is not there.
        """
        return await self._request("GET", kind.path(name, namespace))

    async def log(
        self, name: str, namespace: str, container: str, *, follow: bool = False, tail: int | None
    ) -> AsyncIterator[bytes]:
        """Yield what a Pod's container has printed, as it comes.

        Parameters
        ----------
        follow
            Go on until the container ends.
        tail
            Only so many lines of what it printed before; None for all.

        Raises
        ------
        KubernetesError
            There is no such log (yet), or it may not be read.
        """
        query = {"container": container, "follow": str(follow).lower()}
        if tail is not None:
            query["tailLines"] = str(tail)
        path = PODS.path(name, namespace, "log")
        # A program may say nothing for hours.
        async with stream(self.api, f"GET {path}", path, query, seconds=None) as content:
            async for chunk in content.iter_any():
                yield chunk

    async def create(
        self, kind: Kind, body: Json, *, dry_run: bool = False, once: bool = False
    ) -> Json:
        """Create an object.

        Parameters
        ----------
        dry_run
            Have it admitted and validated, and do not keep it.
        once
            Never send the request again after one that may have taken effect.

        Raises
        ------
        AlreadyExistsError
            If one of that name is there, perhaps by an earlier try of this very call.
        """
        namespace = body["metadata"].get("namespace", "") if kind.namespaced else ""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        path = kind.path(namespace=namespace)
        if dry_run:
            return await self._request("POST", path, query={"dryRun": "All"}, body=body)
        return await self._write("create", kind, "POST", path, body=body, once=once)

    async def replace(self, kind: Kind, body: Json) -> Json:
        """Write a whole object; its resource version is a precondition.

        Raises
        ------
        ConflictError
            If somebody wrote since it was read.
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
            A precondition: the patch holds only if the object still has this version.

        Raises
        ------
        NotFoundError
            If it is not there.
        ConflictError
            If the precondition does not hold.
        """
        if resource_version:
            meta = {**patch.get("metadata", {}), "resourceVersion": resource_version}
            patch = {**patch, "metadata": meta}
        verb = f"patch/{subresource}" if subresource else "patch"
        path = kind.path(name, namespace, subresource)
        return await self._write(
            verb, kind, "PATCH", path, body=patch, content_type="application/merge-patch+json"
        )

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str = "", grace: int | None = None
    ) -> None:
        """Delete an object.

        Parameters
        ----------
        uid
            A precondition: another object of the same name is left alone.
        grace
            Seconds that a Pod has to terminate, instead of what it asks for; a Pod that is being
            deleted already gets less by it, never more. 0 does not wait for the node: for Pods
            whose node is gone.

        Raises
        ------
        NotFoundError
            If it is not there.
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

    async def _write(
        self,
        verb: str,
        kind: Kind,
        method: str,
        path: str,
        *,
        body: Json,
        content_type: str = "application/json",
        once: bool = False,
    ) -> Json:
        self.writes[verb, kind.plural] += 1
        return await self._request(method, path, body=body, content_type=content_type, once=once)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        once: bool = False,
    ) -> Json:
        url = f"{self.api.configuration.host}{path}"
        if query:
            url += f"?{urlencode(query)}"
        headers = {
            "Accept": accept,
            "Content-Type": content_type,
            "User-Agent": "partita-operator",
        }
        delay = _FIRST_DELAY
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._once(f"{method} {path}", method, url, headers, body)
            except FencedError:
                raise
            except UnavailableError as error:
                if attempt == _ATTEMPTS or (once and error.unsure):
                    raise
                wait = min(error.retry_after or random.uniform(delay / 2, delay), _MAX_DELAY)  # noqa: S311 - jitter
                self._log.info("retrying", request=error.what, error=error.message, after=wait)
                await asyncio.sleep(wait)
                delay = min(delay * 3, _MAX_DELAY)
        raise AssertionError  # the loop returns or raises

    async def _once(
        self, what: str, method: str, url: str, headers: dict[str, str], body: Json | None
    ) -> Json:
        if method != "GET" and not (self._may_write() and may_send()):
            raise FencedError(what, 0, "this process does not lead, or it is no longer due")
        # A token may be renewed between two tries.
        headers = dict(headers)
        await self.api.update_params_for_auth(
            headers, [], ["BearerToken"], url, method, body, request_auth=None
        )
        try:
            with fenced(self._may_write if method != "GET" else _always):
                response = await self.api.rest_client.request(  # type: ignore[no-untyped-call]
                    method, url, headers=headers, body=body, _request_timeout=_REQUEST_TIMEOUT
                )
                data = await response.read()
        except ApiException as error:
            status = error.status or 0
            raise KubernetesError(what, status, str(error.reason), unsure=True) from error
        except aiohttp.ClientConnectorError as error:  # nothing was sent
            raise UnavailableError(what, 0, repr(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(what, 0, repr(error), unsure=True) from error
        if not 200 <= response.status < 300:
            raise from_response(what, response.status, data, response.getheader("Retry-After"))
        try:
            result: Json = parse(data)
        except orjson.JSONDecodeError as error:
            # What answers here is no API server, such as a proxy's page; that may pass.
            said = "the answer is no JSON"
            raise UnavailableError(what, response.status, said, unsure=True) from error
        return result
