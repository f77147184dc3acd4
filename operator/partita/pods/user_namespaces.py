"""Which Pods may run as root, and which nodes can isolate them by a user namespace.

Under MPS protocol 3 whoever reaches the control daemon as root can change its limits
(kai-scheduler/gpu-fractioning, fractioning-manager/mpsd/internal/mpsns/manager.go). Root in a user
namespace is another user outside:
https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["has_user_namespaces", "host_namespaces", "may_be_root"]

_HANDLERS: Final = ("", "nvidia")
"""The default handler, and that of the RuntimeClass `nvidia`."""
_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")
"""Not possible together with a user namespace (page above, "Limitations")."""


def has_user_namespaces(node: Mapping[str, Any]) -> bool:
    """Return whether the Pods of jobs on a node can have user namespaces.

    A node's kubelet reports this for each runtime handler: `runtimeHandlers` in
    https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeStatus. Jobs
    use the default handler, or NVIDIA's.
    """
    handlers = (node.get("status") or {}).get("runtimeHandlers") or ()
    supported = [
        (found.get("features") or {}).get("userNamespaces") is True
        for found in handlers
        if (found.get("name") or "") in _HANDLERS
    ]
    return bool(supported) and all(supported)


def may_be_root(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the containers of a Pod that may run as root on the node.

    A container cannot if it starts as another user and cannot gain privileges, for example by
    `sudo`. Pod Security `restricted` requires both. Without `runAsUser` the image decides, and
    kubelet checks it if `runAsNonRoot` is set.
    """
    if spec.get("hostUsers") is False:
        return ()
    pod = _set(spec.get("securityContext"))
    return tuple(
        str(container.get("name"))
        for container in _containers(spec)
        if _may_be_root(pod | _set(container.get("securityContext")))
    )


def host_namespaces(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a Pod with which it cannot have a user namespace."""
    return tuple(name for name in _HOST_NAMESPACES if spec.get(name) is True)


def _may_be_root(context: Mapping[str, Any]) -> bool:
    user = context.get("runAsUser")
    other = context.get("runAsNonRoot") is True if user is None else user != 0
    return not (other and context.get("allowPrivilegeEscalation") is False)


def _set(values: object) -> dict[str, Any]:
    """Return the fields of a security context that are set; the API server rejects other types."""
    found = values if isinstance(values, Mapping) else {}
    return {name: value for name, value in found.items() if value is not None}


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainers", "containers"):
        yield from (c for c in spec.get(kind) or () if isinstance(c, Mapping))
