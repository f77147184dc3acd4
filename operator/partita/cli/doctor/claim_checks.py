"""Checks of what Pods with claims need. Pure functions.

Which plugins are registered with kubelet is in no object of the API. So a plugin that is missing
shows only in the Events of Pods.
"""

from collections.abc import Iterator
from typing import Final

from partita.cli.doctor.check_result import CheckResult, not_applicable, not_checked, ok, problem
from partita.cli.doctor.cluster_checks import OLDEST, minor_of
from partita.cli.doctor.cluster_facts import ClusterFacts
from partita.constants import DRIVER
from partita.models.device_class import device_class_of

__all__ = ["check_claims"]

_CAPACITY: Final = (1, 36)
"""First version with capacity requests by default:
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/,
`DRAConsumableCapacity`."""
_LIMITS_POLICY: Final = "partita-limits"
"""The MutatingAdmissionPolicy in `manifests/limits`."""


def check_claims(facts: ClusterFacts) -> Iterator[CheckResult]:
    """Check the API, the device classes and the devices."""
    version = minor_of(facts.version)
    if version is None:
        return
    if facts.device_classes is None or version < OLDEST:
        found = f"{facts.version} does not serve resource.k8s.io/v1: nothing gets a slice"
        yield problem(found, "upgrade to 1.34 or newer").of("claims")
        return
    spelling = "" if version >= _CAPACITY else "; amounts only by annotations, see run-workloads.md"
    yield ok(f"resource.k8s.io/v1 is served{spelling}").of("claims")
    if facts.installed:
        for check, (examine, kinds) in _CHECKS.items():
            unread = facts.unread(*kinds)
            yield (not_checked(unread) if unread else examine(facts)).of(check)


def _device_classes(facts: ClusterFacts) -> CheckResult:
    names = [partition["metadata"]["name"] for partition in facts.partitions]
    there = facts.device_classes or ()
    missing = [name for name in map(device_class_of, names) if name not in there]
    if missing:
        return problem(
            f"missing: {', '.join(missing)}",
            "check that the operator runs, and its log: it creates one for each partition",
        )
    if not names:
        return not_applicable("there is no GPUPartition")
    return ok(f"{len(names)} partitions have one")


def _devices(facts: ClusterFacts) -> CheckResult:
    """Check that the operator has published the GPU of each GPUServer that has one."""
    pools = {s["spec"]["pool"]["name"] for s in facts.slices if s["spec"].get("driver") == DRIVER}
    ready = [s["metadata"]["name"] for s in facts.servers if (s.get("status") or {}).get("uuid")]
    missing = sorted(set(ready) - pools)
    if missing:
        return problem(
            f"no ResourceSlice: {', '.join(missing)}",
            "check that the operator runs, and its log: it publishes the GPUs",
        )
    if not ready:
        return not_applicable("no GPUServer has a GPU yet")
    return ok(f"{len(ready)} GPUs are published")


def _limits(facts: ClusterFacts) -> CheckResult:
    if facts.mutating_policies is None:
        found = "MutatingAdmissionPolicy v1 is not served: ask by claims, not by limits"
        return not_applicable(found, "it is served from Kubernetes 1.36 on")
    if _LIMITS_POLICY not in facts.mutating_policies:
        found = f"MutatingAdmissionPolicy {_LIMITS_POLICY} is not installed: ask by claims"
        return not_applicable(found, "see docs/how-to/run-workloads.md")
    return ok("limits partita.dev/gpu-memory are replaced by claims")


_CHECKS: Final = {
    "device-classes": (_device_classes, ("deviceclasses", "gpupartitions")),
    "devices": (_devices, ("resourceslices", "gpuservers")),
    "limits": (_limits, ("mutatingadmissionpolicies",)),
}
"""The checks of an installed Partita, and the objects that each needs, by plural."""
