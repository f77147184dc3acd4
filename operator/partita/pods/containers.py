"""Which containers of a Pod run at the same time, and which of them use a claim."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

__all__ = ["concurrent_containers", "containers_of_claim", "restarts_itself", "users_of_entry"]

Body = Mapping[str, Any]


def concurrent_containers(initial: Iterable[Body], main: Iterable[Body]) -> int:
    """Return the maximum number of containers that run at the same time.

    Containers run together with the sidecars. Init containers run one after the other, together
    with the sidecars started before them:
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/, "Resource sharing
    within containers".

    Parameters
    ----------
    initial, main
        Init containers and containers of the Pod.
    """
    sidecars = most = 0
    for container in initial:
        most = max(most, sidecars + 1)
        sidecars += container.get("restartPolicy") == "Always"
    return max(most, sidecars + len([*main]))


def containers_of_claim(pod: Body, claim: str) -> tuple[list[Body], list[Body]]:
    """Return the init containers and the containers of a Pod that use a claim.

    Parameters
    ----------
    pod
        The Pod as the API server returns it.
    claim
        Name of the ResourceClaim.
    """
    spec = pod["spec"]
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    entries = {s["name"] for s in statuses if s.get("resourceClaimName") == claim}
    named = spec.get("resourceClaims") or ()
    entries |= {entry["name"] for entry in named if entry.get("resourceClaimName") == claim}

    return _users(spec, entries)


def users_of_entry(spec: Body, entry: str) -> int:
    """Return how many containers of a Pod name a claim in its spec and run at the same time."""
    return concurrent_containers(*_users(spec, {entry}))


def _users(spec: Body, entries: Container[str]) -> tuple[list[Body], list[Body]]:
    def of(kind: str) -> list[Body]:
        return [
            container
            for container in spec.get(kind) or ()
            if any(
                used["name"] in entries
                for used in (container.get("resources") or {}).get("claims") or ()
            )
        ]

    return of("initContainers"), of("containers")


def restarts_itself(container: Body, *, init: bool) -> str:
    """Return by which restart policy of its own kubelet restarts a container; empty if by none.

    A container has one from Kubernetes 1.35 on (KEP-5307). Sidecars are left out, the init
    containers that always restart: they are started again beside the program, not instead of it.
    """
    policy = container.get("restartPolicy") or ""
    if init and policy == "Always":
        return ""
    return str(policy) if policy != "Never" or container.get("restartPolicyRules") else ""
