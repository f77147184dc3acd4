"""The control plane of all subjects, and how much its clients may ask of the API server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from scheduling.plane import SchedulingControlPlane

__all__ = ["RECOMMENDED", "UNLIMITED", "PeersPlane", "Throttles"]

Json = dict[str, Any]

CONTROLLERS = ("namespace-controller", "job-controller", "resourceclaim-controller")
"""Without garbage collection, as Kueue's benchmark runs: nothing is deleted here."""


@dataclass(frozen=True, slots=True)
class Throttles:
    """Requests a second, and at once, that clients of the API server allow themselves.

    Negative numbers are no limit. Each controller of kube-controller-manager has a limit of its own.
    """

    name: str
    controllers: int
    controllers_burst: int
    scheduler: int
    scheduler_burst: int
    kueue: int
    kueue_burst: int
    hami: int
    hami_burst: int


RECOMMENDED = Throttles("recommended throttles", 100, 100, 100, 100, 300, 500, 100, 100)
"""For large clusters.

Of kube-controller-manager and kube-scheduler: what Kubernetes' SIG Scalability validates clusters of
5,000 nodes with (kubernetes/community, sig-scalability, `CONTROLLER_MANAGER_TEST_ARGS` and
`SCHEDULER_TEST_ARGS`); their defaults are 20 and 50. Of Kueue: its release's own since 0.19, raised
from 50 for large clusters (https://github.com/kubernetes-sigs/kueue/issues/12411). Of HAMi:
those of kube-scheduler, since it recommends none, and with its default of 5 a Pod takes 6 s.
"""

UNLIMITED = Throttles("no throttles", -1, 1, -1, 1, -1, 1, -1, 1)
"""Which Kueue's maintainers prefer, as the API server's Priority and Fairness limits them (the same
issue)."""


class PeersPlane(SchedulingControlPlane):
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler."""

    def __init__(self, assets: Path, throttles: Throttles) -> None:
        super().__init__(assets)
        self._throttles = throttles

    @override
    def api_server_flags(self) -> list[str]:
        # Nobody's requests are noted: only Partita's would be.
        return [*super().api_server_flags(), "--audit-policy-file=", "--audit-log-path="]

    @override
    def controller_flags(self) -> list[str]:
        return [
            f"--controllers={','.join(CONTROLLERS)}",
            f"--kube-api-qps={self._throttles.controllers}",
            f"--kube-api-burst={self._throttles.controllers_burst}",
        ]

    @override
    def scheduler_flags(self) -> list[str]:
        # It has no flags for its limits any more.
        configuration = self.kubeconfig.with_name("kube-scheduler-configuration")
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig.with_name("kube-scheduler-kubeconfig")),
                "qps": self._throttles.scheduler,
                "burst": self._throttles.scheduler_burst,
            },
            **self.scheduler_settings(),
        }
        configuration.write_text(json.dumps(settings))
        return [f"--config={configuration}"]

    def scheduler_settings(self) -> Json:
        """Return what more a subject wants in kube-scheduler's configuration."""
        return {}

    def process_ids(self) -> dict[str, int]:
        """Return the ids of its processes by name."""
        names = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")
        pids = {name: self.server(name).pid for name in names}
        return {name: pid for name, pid in pids.items() if pid is not None}
