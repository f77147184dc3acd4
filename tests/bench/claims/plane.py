"""A control plane that binds Pods with claims: with kube-scheduler, and without a kubelet."""

from __future__ import annotations

from typing_extensions import override

from apiserver.controlplane import ControlPlane

__all__ = ["PlaneWithScheduler", "process_ids"]

_REQUESTS_PER_SECOND = 500
"""Of kube-controller-manager. Its default of 20 would let it make 10 claims a second, and the
benchmark would measure that limit."""


class PlaneWithScheduler(ControlPlane):
    """With kube-scheduler and the controller that makes claims from templates."""

    scheduler = True

    @override
    def controller_flags(self) -> list[str]:
        return [
            "--controllers=namespace-controller,resourceclaim-controller",
            f"--kube-api-qps={_REQUESTS_PER_SECOND}",
            f"--kube-api-burst={_REQUESTS_PER_SECOND}",
        ]


def process_ids(plane: ControlPlane) -> dict[str, int]:
    """Return the ids of its processes by name."""
    names = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
    pids = {name: plane.server(name).pid for name in names}
    return {name: pid for name, pid in pids.items() if pid is not None}
