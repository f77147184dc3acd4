"""Labels by which NVIDIA's GPU Operator requests that GPU clients leave a node.

The upgrade controller of the GPU Operator moves a node through the states of
`nvidia.com/gpu-driver-upgrade-state` (NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go), and evicts
Pods that request `nvidia.com/gpu` (NVIDIA/gpu-operator, cmd/gpu-operator/main.go,
`gpuPodSpecFilter`). It does not evict Pods that use a GPU without that request, as jobs do. From
version 26.7 on it also labels GPU nodes `nvidia.com/gpu.deploy.client=true`.
NVIDIA/k8s-driver-manager 0.12 (cmd/driver-manager/main.go, `maybeSetPaused`) changes the value to
`paused-for-driver-upgrade` before it unloads the driver, and NVIDIA/mig-parted to
`paused-for-mig-change`; both change it back to `true` at the end.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CLIENTS_MAY_RUN", "LABEL_PRODUCT", "maintenance"]

LABEL_PRODUCT: Final = "nvidia.com/gpu.product"
"""Label of the GPU product, set by GPU feature discovery:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md,
"Generated Labels"."""

_CLIENT: Final = "nvidia.com/gpu.deploy.client"
_UPGRADE: Final = "nvidia.com/gpu-driver-upgrade-state"
_AT_REST: Final = frozenset({"", "upgrade-required", "upgrade-done", "upgrade-failed"})
"""States in which the upgrade of a node is waiting or finished. In every other state,
including states that a later release adds, GPU clients must leave the node."""

CLIENTS_MAY_RUN: Final[tuple[dict[str, Any], ...]] = (
    {"key": _CLIENT, "operator": "In", "values": ["true"]},
    {"key": _CLIENT, "operator": "DoesNotExist"},
)
"""Node requirements: GPU clients may run on a node that meets one of them. GPU Operators before
26.7 do not set the label, and clusters without a GPU Operator do not have it."""


def maintenance(labels: Mapping[str, str]) -> str:
    """Return the label, as `key=value`, that requires GPU clients to leave a node, or ''."""
    if (client := labels.get(_CLIENT, "true")) != "true":
        return f"{_CLIENT}={client}"
    if (state := labels.get(_UPGRADE, "")) not in _AT_REST:
        return f"{_UPGRADE}={state}"
    return ""
