"""Checks of the cluster as a whole. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final

from partita.cli.doctor.check_result import CheckResult, not_applicable, not_checked, ok, problem
from partita.cli.doctor.cluster_facts import ClusterFacts
from partita.models import crd

__all__ = ["OLDEST", "check_cluster", "minor_of"]

OLDEST: Final = (1, 34)
"""Oldest supported version (docs/how-to/install.md, "Support matrix"), and the first with
`resource.k8s.io/v1`
(https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/,
`DynamicResourceAllocation`)."""
_SERVERS: Final = "partita-servers"
"""Namespace of the server Pods in `manifests/base/namespaces.yaml`."""
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"


def check_cluster(facts: ClusterFacts, namespace: str) -> Iterator[CheckResult]:
    """Check version, installation and Pod Security.

    Parameters
    ----------
    namespace
        Where the test Pods are created.
    """
    for plural, message in facts.unreadable.items():
        remedy = "run the command with a role that may list them"
        yield not_checked(message, remedy).of(f"rights: {plural}")
    yield _version(facts.version).of("kubernetes")
    yield _crds(facts).of("crds")
    yield _operator(facts).of("operator")
    yield _pod_security(facts, namespace).of("pod-security")


def minor_of(version: str) -> tuple[int, int] | None:
    """Return major and minor of a version such as `v1.30.2-gke.1`; None if there are none."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _version(text: str) -> CheckResult:
    found = minor_of(text)
    if found is None:
        return not_checked(f"the API server's version cannot be read: {text!r}")
    if found < OLDEST:
        said = f"{text}, and Partita needs 1.34 or newer: jobs get their GPUs by ResourceClaims"
        return problem(said, "upgrade the cluster")
    return ok(text)


def _crds(facts: ClusterFacts) -> CheckResult:
    if unread := facts.unread("customresourcedefinitions"):
        return not_checked(unread)
    if not facts.crds:
        return not_applicable("Partita is not installed", "see docs/how-to/install.md")
    wanted = {resource.definition for resource in crd.RESOURCES}
    missing = sorted(wanted - {one["metadata"]["name"] for one in facts.crds})
    if missing:
        return problem(f"missing: {', '.join(missing)}", "run `partita crds --install`")
    return ok(f"{len(wanted)} are installed")


def _operator(facts: ClusterFacts) -> CheckResult:
    if not facts.installed:
        unread = facts.unread("customresourcedefinitions")
        return not_checked(unread) if unread else not_applicable("Partita is not installed")
    if unread := facts.unread("leases"):
        return not_checked(unread)
    if facts.operator_problem:
        return problem(facts.operator_problem, "see docs/how-to/install.md")
    return ok("it is running")


def _pod_security(facts: ClusterFacts, namespace: str) -> CheckResult:
    """Test Pods and Pods of jobs meet `restricted`; server Pods need `privileged`."""
    if unread := facts.unread("namespaces"):
        return not_checked(unread)
    level = _level(facts, _SERVERS)
    if facts.installed and _SERVERS in facts.namespaces and level not in {"", "privileged"}:
        return problem(
            f"namespace {_SERVERS} enforces {level}, and server Pods need privileged",
            f"kubectl label namespace {_SERVERS} {_ENFORCE}=privileged --overwrite",
        )
    if facts.namespaces and namespace not in facts.namespaces:
        return problem(
            f"namespace {namespace} does not exist",
            f"create it with `kubectl create namespace {namespace}`, or name another with -n",
        )
    return ok(f"namespace {namespace} enforces {_level(facts, namespace) or 'nothing'}")


def _level(facts: ClusterFacts, namespace: str) -> str:
    body = facts.namespaces.get(namespace, {"metadata": {}})
    return str((body["metadata"].get("labels") or {}).get(_ENFORCE, ""))
