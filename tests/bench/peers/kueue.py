"""Kueue with batch/v1 Jobs: its real manager, set up as its release and its documentation say.

Each choice that its documentation leaves open favours Kueue: ClusterQueues that neither borrow nor
preempt, because each preemption is work that the other subjects do not have; quota of `cpu`, as in
its own benchmark, which needs no device class; nodes with room for whatever it admits, so that
kube-scheduler binds each Pod at its first try; webhooks for Jobs and its own kinds alone, where its
release has every new Pod call one; rights of an administrator, whom the API server asks no further;
logging of less than its release has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from apiserver.binaries import KUEUE, MANIFESTS
from apiserver.build import assets
from bench.client import Client, Json
from bench.jobs import BatchJobs
from bench.shape import CAPACITY, CLASSES
from bench.stage import Plane
from kube_scheduler.kueue.kueue import Kueue
from kube_scheduler.kueue.queues import GROUP, QUEUE_LABEL

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["KueueJobs"]


VERSION = GROUP.removeprefix("/apis/")
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
QUEUE = "bench"
FLAVOR = "any"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_CALLED_FOR = {"batch", "kueue.x-k8s.io"}


class KueueJobs(BatchJobs):
    """Jobs in a LocalQueue of their namespace."""

    name = "Kueue, Jobs"

    @override
    async def install(self, plane: Plane, api: Client, stack: ExitStack) -> dict[str, int]:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="partita-kueue-")))
        program, tools = assets(what=KUEUE) / "kueue", assets(what=MANIFESTS)
        often, at_once = plane.throttles.kueue
        settings = {
            "clientConnection": {"qps": often, "burst": at_once},
            "integrations": {"frameworks": ["batch/job"]},
        }
        kueue = Kueue(plane, plane.kubectl, program, tools, folder, settings)
        return {"kueue": stack.enter_context(kueue).pid}

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
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
        for name in namespaces:
            body = {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": _quota()}
            await _made(api, "clusterqueues", body)
            body = {"kind": "LocalQueue", "metadata": {"name": QUEUE}}
            body["spec"] = {"clusterQueue": name}
            await _made(api, f"namespaces/{name}/localqueues", body)

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        labels = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: work.size.name}
        return self.batch_job(work, labels, {"requests": {"cpu": str(work.size.units)}})


def _groups(webhook: Json) -> set[str]:
    return {group for rule in webhook["rules"] for group in rule["apiGroups"]}


def _quota() -> Json:
    resource = {"name": "cpu", "nominalQuota": CAPACITY}
    flavor = {"name": FLAVOR, "resources": [resource]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return {"namespaceSelector": {}, "resourceGroups": [group]}


async def _made(api: Client, path: str, body: Json) -> None:
    """Create an object of Kueue's as soon as its kind is served."""
    await api.post_when_served(f"{GROUP}/{path}", {"apiVersion": VERSION, **body})
