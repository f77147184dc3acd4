"""Kueue with batch/v1 Jobs: its real manager, set up as its release and its documentation say.

Each choice that its documentation leaves open favours Kueue: ClusterQueues that neither borrow nor
preempt, because each preemption is work that the other subjects do not have; quota of `cpu`, as in
its own benchmark, which needs no device class; nodes with room for whatever it admits, so that
kube-scheduler binds each Pod at its first try; webhooks for Jobs and its own kinds alone, where its
release has every new Pod call one; rights of an administrator, whom the API server asks no further;
logging of less than its release has.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from typing_extensions import override

from apiserver.binaries import KUEUE, MANIFESTS
from apiserver.build import assets
from bench.peers.plane import PeersPlane, Throttles
from bench.peers.subject import BatchJobs, Subject
from bench.scale.client import Client, RefusedError
from bench.scale.shape import CAPACITY, CLASSES, JobClass
from scheduling.kueue.kueue import Kueue
from scheduling.kueue.queues import GROUP, QUEUE_LABEL

__all__ = ["KueueJobs"]

Json = dict[str, Any]

VERSION = GROUP.removeprefix("/apis/")
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
QUEUE = "bench"
FLAVOR = "any"
READY_SECONDS = 60
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_CALLED_FOR = {"batch", "kueue.x-k8s.io"}


class KueueJobs(BatchJobs, Subject):
    """Jobs in a LocalQueue of their namespace."""

    name = "Kueue, Jobs"
    component = "kueue"

    def __init__(self, throttles: Throttles) -> None:
        self._settings = {
            "clientConnection": {"qps": throttles.kueue, "burst": throttles.kueue_burst},
            "integrations": {"frameworks": ["batch/job"]},
        }

    @override
    async def install(self, plane: PeersPlane, api: Client, stack: ExitStack) -> int:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="partita-kueue-")))
        program, tools = assets(what=KUEUE) / "kueue", assets(what=MANIFESTS)
        kueue = Kueue(plane, assets() / "kubectl", program, tools, folder, self._settings)
        return stack.enter_context(kueue).pid

    @override
    async def prepare(self, api: Client, names: list[str]) -> None:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for found in (await api.get(f"{_WEBHOOKS}/{kind}"))["items"]:
                kept = [one for one in found["webhooks"] if _groups(one) <= _CALLED_FOR]
                path = f"{_WEBHOOKS}/{kind}/{found['metadata']['name']}"
                await api.patch(path, {"webhooks": kept})
        flavor = {"kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
        await _made(api, "resourceflavors", flavor)
        for one in CLASSES:
            body = {"kind": "WorkloadPriorityClass", "metadata": {"name": one.name}}
            await _made(api, "workloadpriorityclasses", {**body, "value": one.priority})
        for name in names:
            body = {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": _quota()}
            await _made(api, "clusterqueues", body)
            body = {"kind": "LocalQueue", "metadata": {"name": QUEUE}}
            body["spec"] = {"clusterQueue": name}
            await _made(api, f"namespaces/{name}/localqueues", body)

    @override
    def job(self, name: str, namespace: str, kind: JobClass) -> Json:
        labels = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: kind.name}
        return self.batch_job(name, kind, labels, {"requests": {"cpu": str(kind.units)}})


def _groups(webhook: Json) -> set[str]:
    return {group for rule in webhook["rules"] for group in rule["apiGroups"]}


def _quota() -> Json:
    resource = {"name": "cpu", "nominalQuota": CAPACITY}
    flavor = {"name": FLAVOR, "resources": [resource]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return {"namespaceSelector": {}, "resourceGroups": [group]}


async def _made(api: Client, path: str, body: Json) -> None:
    """Create an object of Kueue's as soon as its kind is served."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                await api.post(f"{GROUP}/{path}", {"apiVersion": VERSION, **body})
            except RefusedError as error:
                # Not yet: its storage is made a moment after its definition, and its webhook
                # listens a moment after its manager is ready.
                if error.status not in {404, 429, 500}:
                    raise
                await asyncio.sleep(0.1)
            else:
                return
