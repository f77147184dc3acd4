"""Removes Partita from a cluster, in an order in which no object waits for another one for ever.

Every step deletes the objects that it finds, so an interrupted removal can be started again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from partita.cli.jobs.find_job import key_of
from partita.cli.terminal import UserError
from partita.constants import (
    COMPONENT_JOB,
    COMPONENT_SERVER,
    FINALIZER,
    LABEL_COMPONENT,
    PART_OF,
)
from partita.kube.client import (
    BUDGETS,
    CLAIM_TEMPLATES,
    CRDS,
    DEVICE_CLASSES,
    JOBS,
    LEASES,
    NAMESPACES,
    PARTITIONS,
    PODS,
    PROFILES,
    RESOURCE_SLICES,
    SERVERS,
    Kind,
    Kube,
)
from partita.kube.errors import ForbiddenError, NotFoundError
from partita.kube.operator_lease import OPERATOR_LEASE, operator_namespace, operator_problem
from partita.models import crd

__all__ = ["KEPT", "find_installation", "pods_with_slices", "remove", "running_jobs"]

Json = dict[str, Any]

_LABEL: Final = ",".join(f"{key}={value}" for key, value in PART_OF.items())
"""Selects every object of `manifests/` and of the Helm chart, and what the operator publishes."""
_POLL: Final = 0.5
"""Seconds between two checks for remaining objects."""
_NAMED: Final = 5
"""Objects of one kind that a message names at most."""

_RBAC: Final = ("rbac.authorization.k8s.io", "v1")
_ADMISSION: Final = ("admissionregistration.k8s.io", "v1")
_MONITORING: Final = ("monitoring.coreos.com", "v1")
_DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", namespaced=True)
_POLICY_KINDS: Final = tuple(
    Kind(*_ADMISSION, plural, kind, namespaced=False)
    for plural, kind in (
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    )
)
_OTHER_KINDS: Final = (
    Kind("", "v1", "services", "Service", namespaced=True),
    Kind("", "v1", "configmaps", "ConfigMap", namespaced=True),
    BUDGETS,
    Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True),
    Kind(*_MONITORING, "podmonitors", "PodMonitor", namespaced=True),
    Kind(*_MONITORING, "prometheusrules", "PrometheusRule", namespaced=True),
    Kind(*_RBAC, "rolebindings", "RoleBinding", namespaced=True),
    Kind(*_RBAC, "roles", "Role", namespaced=True),
    Kind(*_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Kind(*_RBAC, "clusterroles", "ClusterRole", namespaced=False),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
    CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
)
"""What the operator publishes comes after its rights, so that it does not create it again."""
_INSTALLED: Final = (_DEPLOYMENTS, *_POLICY_KINDS, *_OTHER_KINDS)
"""Kinds of the installed objects, in the order in which they are deleted."""
KEPT: Final = f"{PROFILES.plural}.{PROFILES.group}"
"""The CRD of the profiles, which may be kept."""


async def find_installation(kube: Kube) -> dict[Kind, list[Json]]:
    """Return all objects of Partita in a cluster, by kind."""
    labels = dict.fromkeys((JOBS, PARTITIONS, SERVERS, PROFILES), "")
    labels |= dict.fromkeys(_INSTALLED, _LABEL) | {CRDS: "", NAMESPACES: _LABEL}
    found = {kind: await _list(kube, kind, label) for kind, label in labels.items()}
    names = {resource.definition for resource in crd.RESOURCES}
    found[CRDS] = [d for d in found[CRDS] if d["metadata"]["name"] in names]
    return found


def running_jobs(jobs: list[Json]) -> list[str]:
    """Return the jobs that are assigned or running, as `namespace/name`."""
    phases = {"Assigned", "Running"}
    return [key_of(job) for job in jobs if (job.get("status") or {}).get("phase") in phases]


def pods_with_slices(servers: list[Json]) -> list[str]:
    """Return the Pods of other controllers that have an allocation, as `namespace/name`."""
    ledgers = [(server.get("status") or {}).get("allocations") or {} for server in servers]
    entries = [entry for ledger in ledgers for entry in ledger.values()]
    return sorted(f"{e['namespace']}/{e['pod']}" for e in entries if not e.get("job"))


async def remove(
    kube: Kube, *, keep_profiles: bool, patience: float, report: Callable[[str], None]
) -> None:
    """Remove everything that `find_installation` finds.

    Parameters
    ----------
    patience
        Seconds that one step may wait for the deletion of objects.
    report
        Called with a sentence for each step, and with the objects that a step waits for.
    """
    steps = _Removal(kube, patience, report)
    await steps.delete(PARTITIONS)  # first: no further job starts
    await steps.delete(JOBS)
    await steps.give_gpus_back()
    for kind in _INSTALLED:
        await steps.delete(kind, _LABEL)
    definitions = {resource.definition for resource in crd.RESOURCES}
    await steps.delete(
        CRDS, names=definitions - ({KEPT} if keep_profiles else set()), reported="CRDs"
    )
    await steps.delete(NAMESPACES, _LABEL)


class _Removal:
    def __init__(self, kube: Kube, patience: float, report: Callable[[str], None]) -> None:
        self._kube = kube
        self._patience = patience
        self._report = report

    async def delete(
        self, kind: Kind, label: str = "", *, names: set[str] | None = None, reported: str = ""
    ) -> None:
        """Delete all objects of a kind, or those with these names, and wait for the deletion."""

        async def left() -> list[Json]:
            found = await _list(self._kube, kind, label)
            return [o for o in found if names is None or o["metadata"]["name"] in names]

        found = await left()
        if not found:
            return
        self._report(f"Deleting {reported or kind.kind}: {_enumerate(map(key_of, found))}")
        for one in found:
            await self._delete(kind, one)
        await self._until_gone(left, lambda o: f"{kind.kind} {key_of(o)}")

    async def give_gpus_back(self) -> None:
        """Wait until the operator has released all GPUs; release them here if no operator runs."""

        async def left() -> list[Json]:
            servers = await _list(self._kube, SERVERS)
            if servers and (problem := await self._operator_problem()):
                self._report(f"{problem} This command gives the GPUs back instead.")
                await self._give_back_without_operator()
                return await _list(self._kube, SERVERS)
            return servers

        if not await _list(self._kube, SERVERS):
            return
        self._report("Waiting until the operator has ended the jobs and given all GPUs back")
        await self._until_gone(left, _held_by)

    async def _operator_problem(self) -> str:
        """Return why no operator is running; empty if one is."""
        namespace = operator_namespace()
        for deployment in await _list(self._kube, _DEPLOYMENTS, _LABEL):
            if deployment["metadata"]["name"] == OPERATOR_LEASE:  # Helm allows any namespace
                namespace = deployment["metadata"]["namespace"]
        try:
            lease = await self._kube.get(LEASES, OPERATOR_LEASE, namespace)
        except NotFoundError:
            lease = None
        return operator_problem(lease, namespace, datetime.now(UTC))

    async def _give_back_without_operator(self) -> None:
        # The operator must not start again meanwhile, and an admission policy allows only the
        # operator to remove finalizers.
        for kind in (_DEPLOYMENTS, *_POLICY_KINDS):
            await self.delete(kind, _LABEL)
        for server in await _list(self._kube, SERVERS):
            await self._delete(SERVERS, server)
        # Jobs fail if the server Pod of their GPU is deleted first.
        for component in (COMPONENT_JOB, COMPONENT_SERVER):
            await self.delete(PODS, f"{LABEL_COMPONENT}={component}")
        for server in await _list(self._kube, SERVERS):
            await self._remove_finalizer(server)

    async def _remove_finalizer(self, server: Json) -> None:
        meta = server["metadata"]
        finalizers = [f for f in meta.get("finalizers") or () if f != FINALIZER]
        patch = {"metadata": {"finalizers": finalizers}}

        async def refused() -> list[Json]:
            """Remove the finalizers; return the server if the deleted policy is still enforced."""
            try:
                await self._kube.patch(SERVERS, meta["name"], patch)
            except NotFoundError:
                pass
            except ForbiddenError:
                return [server]
            return []

        await self._until_gone(refused, lambda o: f"the right to release GPUServer {key_of(o)}")

    async def _delete(self, kind: Kind, one: Json) -> None:
        meta = one["metadata"]
        with suppress(NotFoundError):
            await self._kube.delete(kind, meta["name"], meta.get("namespace", ""))

    async def _until_gone(
        self, left: Callable[[], Awaitable[list[Json]]], describe: Callable[[Json], str]
    ) -> None:
        """Wait until no object is left; report the remaining objects whenever they change."""
        reported = ""
        try:
            async with asyncio.timeout(self._patience):
                while found := await left():
                    now = _enumerate(map(describe, found))
                    if reported and now != reported:
                        self._report(f"  still there: {now}")
                    reported = now
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise UserError(
                f"still there after {self._patience:.0f} s: {reported}; find out why with "
                "`kubectl describe`, then run `partita uninstall` again, which continues here"
            ) from None


def _held_by(server: Json) -> str:
    allocations = ((server.get("status") or {}).get("allocations") or {}).values()
    users = _enumerate(f"{a['namespace']}/{a.get('job') or a['pod']}" for a in allocations)
    return f"GPUServer {key_of(server)}" + (f" (used by {users})" if allocations else "")


def _enumerate(names: Any) -> str:
    found = sorted(names)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


async def _list(kube: Kube, kind: Kind, label: str = "") -> list[Json]:
    """Return the objects of a kind; empty if the cluster does not serve the kind."""
    try:
        return (await kube.list(kind, label_selector=label))[0]
    except NotFoundError:
        return []
