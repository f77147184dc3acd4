"""The control plane of a cluster with a node: all controllers, a scheduler, a kubelet's user."""

from __future__ import annotations

import secrets
from pathlib import Path

from typing_extensions import override

from apiserver.controlplane import ControlPlane
from cluster.slots import Slot

__all__ = ["NODE_NAME", "ClusterControlPlane"]

NODE_NAME = "partita-node"


class ClusterControlPlane(ControlPlane):
    """A control plane that Pods of a slot's node reach at the Service ``kubernetes``.

    The API server itself has that Service's address (the first of the range), which the slot's
    link carries: nothing has to be translated, so no kube-proxy and no iptables are needed.
    """

    port = 443
    scheduler = True

    def __init__(self, assets: Path, slot: Slot) -> None:
        super().__init__(assets)
        self.address = slot.api_server
        self.node_token = secrets.token_hex(16)
        self._slot = slot

    @override
    def users(self) -> list[tuple[str, str, str]]:
        return [*super().users(), (self.node_token, f"system:node:{NODE_NAME}", "system:nodes")]

    @override
    def api_server_flags(self) -> list[str]:
        return [
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={self._slot.services}",
            "--enable-admission-plugins=NodeRestriction",
            # Otherwise it looks the node's name up to ask for logs.
            "--kubelet-preferred-address-types=InternalIP",
        ]

    @override
    def controller_flags(self) -> list[str]:
        return [f"--root-ca-file={self.certificate}"]
