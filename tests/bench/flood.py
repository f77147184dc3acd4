"""What a flood of one namespace costs another: phases without and with it alternate in one run.

In each phase the other namespace submits a job that fits, one that does not, and a Pod that names a
new template, one after the other. The partition has one GPU, on which the flood does not fit. A
ConfigMap shows what the flood costs without the operator: one write until a watch has it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import ExitStack, suppress
from itertools import count
from time import perf_counter
from typing import Any

from apiserver.build import assets
from bench.client import Client, Json, RefusedError, client
from bench.harness import Figure, quantile, show, tell
from bench.jobs import DRA
from bench.nodes import Nodes
from bench.operator import Times
from bench.shape import API, RUN_SECONDS, job, partition
from bench.stage import UNLIMITED, Plane, install_operator, make_namespace, make_partitions
from partita.constants import ALLOCATION_GATE
from partita.models.device_class import device_class_of
from support.builders import owner
from support.claims import claim_request

__all__ = ["KINDS", "measure"]

KINDS = ("jobs", "pods", "rollout", "users", "claims", "templates", "profiles", "configmaps")
"""Pods of one Deployment are a rollout, those that name one claim its users, and profiles those of
one application. ConfigMaps mean nothing to Partita: their cost is the API server's."""
NAME, FLOOD, QUIET, HELD = "shared", "flood", "quiet", "held"
LARGE = 18 << 10
"""MiB: more than is left beside the job that holds 4 GiB."""
SUBMITTERS = 4

_Waits = defaultdict[tuple[str, str], list[float]]


class _Plane(Plane):
    scheduler = False
    controllers = "namespace-controller,resourceclaim-controller,garbage-collector-controller"


def _path(kind: str, namespace: str) -> str:
    ours, core = ("sharedgpujobs", "applicationprofiles"), ("pods", "configmaps")
    group = f"/apis/{API}" if kind in ours else "/api/v1" if kind in core else DRA
    return f"{group}/namespaces/{namespace}/{kind}"


def _job(name: str, mebibytes: int, seconds: int = 99999) -> tuple[str, Json]:
    return "sharedgpujobs", job(name, NAME, f"{mebibytes}Mi", {RUN_SECONDS: str(seconds)})


def _pod(name: str, mebibytes: int) -> tuple[str, Json]:
    claim = {"name": "gpu", "resourceClaimTemplateName": f"partita-{mebibytes << 20}"}
    main = {"name": "main", "image": "bench", "resources": {"claims": [{"name": "gpu"}]}}
    gates = [{"name": ALLOCATION_GATE}]
    spec = {"containers": [main], "resourceClaims": [claim], "schedulingGates": gates}
    return "pods", {"metadata": {"name": name}, "spec": spec}


def _config_map(name: str) -> tuple[str, Json]:
    return "configmaps", {"metadata": {"name": name}}


def _of_flood(kind: str, number: int) -> tuple[str, Json]:
    name = f"flood-{number}"
    if kind == "jobs":
        return _job(name, LARGE)
    if kind == "profiles":
        profile = {"apiVersion": API, "kind": "ApplicationProfile", "metadata": {"name": name}}
        return "applicationprofiles", {**profile, "spec": {"application": FLOOD}}
    if kind == "configmaps":
        return _config_map(name)
    if kind == "claims" or (kind == "users" and not number):
        requests = [claim_request(device_class_of(NAME), memory=f"{LARGE}Mi")]
        spec = {"devices": {"requests": requests}}
        return "resourceclaims", {"metadata": {"name": name}, "spec": spec}
    what, pod = _pod(name, LARGE + (number if kind == "templates" else 0))
    if kind == "users":
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "flood-0"}]
    if kind == "rollout":  # no garbage collector knows such an owner
        by = {**owner("ReplicaSet", "flood-1"), "apiVersion": "bench/v1"}
        pod["metadata"] |= {"ownerReferences": [by], "labels": {"pod-template-hash": "1"}}
    return what, pod


class _Run:
    def __init__(self, api: Client) -> None:
        self._api, self._numbers, self.times = api, count(), Times()
        self.waits: _Waits = defaultdict(list)
        """Seconds until the other namespace was served, by what and phase."""

    async def _post(self, namespace: str, asked: tuple[str, Json]) -> None:
        await self._api.post(_path(asked[0], namespace), asked[1])

    async def _probe(self, phase: str) -> None:
        """Submit one of each, and delete what does not end by itself."""
        number, times = next(self._numbers), self.times
        fits, waits, pod, plain = (f"{of}-{number}" for of in ("fits", "waits", "pod", "plain"))
        for what, asked, seen in (
            ("ConfigMap to watch", _config_map(plain), lambda: plain in times.started),
            ("job to Pod", _job(fits, 1024, 0), lambda: f"{fits}-1" in times.started),
            ("job to reason", _job(waits, LARGE), lambda: {*times.reasons.get(waits, ())} - {"Scheduling"}),
            ("Pod to claim", _pod(pod, 64 + number), lambda: pod in times.started),
        ):  # fmt: skip
            began = perf_counter()
            await self._post(QUIET, asked)
            await times.until(seen)
            self.waits[what, phase].append(perf_counter() - began)
        template = ("resourceclaimtemplates", f"partita-{64 + number << 20}")
        left = (("sharedgpujobs", waits), ("pods", pod), ("configmaps", plain), template)
        for kind, name in left:
            await self._api.delete(f"{_path(kind, QUIET)}/{name}")

    async def _flood(self, kind: str, numbers: range) -> None:
        left = iter(numbers)

        async def submit() -> None:
            for one in left:
                await self._post(FLOOD, _of_flood(kind, one))

        await asyncio.gather(*(submit() for _ in range(SUBMITTERS)))

    async def _clear(self) -> None:
        kinds = ("sharedgpujobs", "applicationprofiles", "configmaps", "pods", "resourceclaims")
        for kind in (*kinds, "resourceclaimtemplates"):
            while (await self._api.get(f"{_path(kind, FLOOD)}?limit=1"))["items"]:
                with suppress(RefusedError, TimeoutError):
                    await self._api.delete(_path(kind, FLOOD))

    async def alternate(self, kind: str, number: int, least: int, turns: int) -> None:
        async with asyncio.TaskGroup() as group:
            nodes = Nodes(self._api, 1, group, lambda *_: None)
            await nodes.create()

            def see(event: str, pod: Json) -> None:
                nodes.see(event, pod)
                self.times.pod(event, pod)

            for name in (FLOOD, QUIET, HELD):
                await make_namespace(self._api, name)
            for name in ("partita-servers", QUIET, HELD):
                group.create_task(self._api.watch(_path("pods", name), see))
            group.create_task(self._api.watch(_path("sharedgpujobs", QUIET), self.times.job))
            group.create_task(self._api.watch(_path("configmaps", QUIET), self.times.pod))
            shared = partition(NAME)
            # No GPU is reserved for the flood, which waits for a job that never ends.
            shared["spec"]["policy"] = {"maxBypasses": 10_000}
            await make_partitions(self._api, [shared])
            await self._post(HELD, _job(HELD, 4 << 10))
            await self.times.until(lambda: f"{HELD}-1" in self.times.started)
            for turn in range(turns):
                await self._probe("while it settles")
                tell(f"turn {turn + 1} of {turns}: alone, then beside {number} {kind}")
                for _ in range(least):
                    await self._probe("alone")
                flood, done = group.create_task(self._flood(kind, range(number))), 0
                while done < least or not flood.done():
                    await self._probe("beside it")
                    done += 1
                await self._clear()
            raise asyncio.CancelledError  # ends the group, in which a job runs for ever


async def _run(plane: Plane, stack: ExitStack, *how: Any) -> _Waits:
    async with client(plane.url, plane.token, plane.certificate) as api:
        await install_operator(plane, api, stack)
        run = _Run(api)
        with suppress(asyncio.CancelledError):
            await run.alternate(*how)
    return run.waits


def measure(kind: str, number: int, least: int, turns: int) -> None:
    """Measure and print, with at least so many samples of each phase in a turn."""
    with ExitStack() as stack:
        plane = stack.enter_context(_Plane(assets(), UNLIMITED))
        waits = asyncio.run(_run(plane, stack, kind, number, least, turns))
    figures = []
    for what in {of: None for of, phase in waits if phase == "alone"}:
        for name, share, target in (("median", 0.5, None), ("p99", 0.99, 2.0)):
            both = {phase: quantile(waits[what, phase], share) for phase in ("alone", "beside it")}
            for phase, seconds in both.items():
                samples = len(waits[what, phase])
                figures.append(Figure(f"{what}, {name}, {phase}", seconds, "s", None, samples))
            ratio = both["beside it"] / both["alone"]
            bound = None if what.startswith("ConfigMap") else target
            figures.append(Figure(f"{what}, {name}, ratio", ratio, "", bound))
    show(f"Beside {number} {kind} of another namespace", figures)
