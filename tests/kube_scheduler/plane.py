"""A control plane whose Pods are scheduled: real controllers and kube-scheduler, and no kubelet."""

from __future__ import annotations

from typing_extensions import override

from apiserver.controlplane import CONTROLLERS, ControlPlane

__all__ = ["WEBHOOK_ADDRESS", "SchedulingControlPlane"]

SERVICES = "127.64.0.0/24"
"""Cluster IPs of Services. The API server calls a webhook at its Service's cluster IP, and a
loopback address needs no kube-proxy: a process of this machine listens there."""

WEBHOOK_ADDRESS = "127.64.0.10"

WORKLOADS = (
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "disruption-controller",
    "resourceclaim-controller",
    "pod-garbage-collector-controller",
    "taint-eviction-controller",
)
"""Not among them: the node lifecycle controller. Nodes without a kubelet renew no Lease."""


class SchedulingControlPlane(ControlPlane):
    """A control plane with kube-scheduler and the controllers of workloads."""

    scheduler = True

    @override
    def api_server_flags(self) -> list[str]:
        return [
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={SERVICES}",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ]

    @override
    def controller_flags(self) -> list[str]:
        return [f"--controllers={','.join((*CONTROLLERS, *WORKLOADS))}"]
