"""Simulated nodes whose Pods kube-scheduler binds, the same for every subject."""

from __future__ import annotations

import time
from typing import Any

from typing_extensions import override

from bench.scale.nodes import Nodes, run_seconds
from partita.constants import COMPONENT_SERVER, LABEL_COMPONENT

__all__ = ["PODS", "BoundNodes"]

Json = dict[str, Any]

PODS = "/api/v1/pods"


class BoundNodes(Nodes):
    """Run each Pod from when it is bound, and read what its node would read.

    For a Pod with claims that is the claim once by kubelet (`PrepareResources` in
    pkg/kubelet/cm/dra/manager.go of k8s.io/kubernetes), and claim and Pod by Partita's agent.
    """

    _begun: set[str]

    @override
    async def create(self) -> None:
        self._begun = set()
        await super().create()

    @override
    def see(self, kind: str, pod: Json) -> None:
        meta = pod["metadata"]
        if meta.get("labels", {}).get(LABEL_COMPONENT) == COMPONENT_SERVER:
            super().see(kind, pod)
        elif kind != "DELETED" and pod["spec"].get("nodeName") and meta["uid"] not in self._begun:
            self._begun.add(meta["uid"])
            self._on_job_pod(meta["namespace"], meta["name"])
            self._group.create_task(self._start(pod, time.monotonic()))

    async def _start(self, pod: Json, seen: float) -> None:
        meta = pod["metadata"]
        for claim in _claims(pod):
            path = f"/apis/resource.k8s.io/v1/namespaces/{meta['namespace']}/resourceclaims/{claim}"
            for _ in ("kubelet", "agent"):
                await self._client.get(path)
            await self._client.get(f"{PODS_OF}/{meta['namespace']}/pods/{meta['name']}")
        await self._run(meta, run_seconds(pod), seen)


PODS_OF = "/api/v1/namespaces"


def _claims(pod: Json) -> list[str]:
    """Return the names of a bound Pod's claims."""
    made = pod.get("status", {}).get("resourceClaimStatuses") or ()
    named = pod["spec"].get("resourceClaims") or ()
    names = [entry.get("resourceClaimName") for entry in (*made, *named)]
    return [name for name in names if name]
