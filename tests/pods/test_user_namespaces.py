"""Which Pods may run as root under MPS protocol 3, and what is done about it."""

from typing import Any

import pytest

from partita.pods.job_pod import build_job_pod
from partita.pods.user_namespaces import has_user_namespaces, host_namespaces, may_be_root
from pods.builders import a_job, an_allocation, containers_of, env_of

UNPRIVILEGED = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}


def spec_of(context: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "train"}
    if context is not None:
        container["securityContext"] = context
    return {"containers": [container], **fields}


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(UNPRIVILEGED),
        spec_of({"runAsUser": 1000, "allowPrivilegeEscalation": False}),
        spec_of(
            {"allowPrivilegeEscalation": False, "runAsUser": None},
            securityContext={"runAsUser": 1000},
        ),
        spec_of(hostUsers=False),
    ],
)
def test_a_pod_that_cannot_be_root(spec: dict[str, Any]):
    assert may_be_root(spec) == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"securityContext": "none", "containers": [{"name": "main", "securityContext": [1]}]},
        spec_of(),
        spec_of({"runAsUser": 0, **UNPRIVILEGED}),
        spec_of({"runAsUser": 1000}),  # it may call sudo
        spec_of({"runAsNonRoot": True, "allowPrivilegeEscalation": True}),
        spec_of({"runAsUser": 0, "allowPrivilegeEscalation": False}, securityContext=UNPRIVILEGED),
        spec_of(UNPRIVILEGED, initContainers=[{"name": "main"}]),
        spec_of(hostUsers=True),
    ],
)
def test_a_pod_that_may_be_root(spec: dict[str, Any]):
    assert may_be_root(spec) == ("main",)


def test_a_node_supports_them_if_each_handler_of_jobs_does():
    def node(*handlers: tuple[str, bool]) -> dict[str, Any]:
        found = [{"name": n, "features": {"userNamespaces": yes}} for n, yes in handlers]
        return {"status": {"runtimeHandlers": found}}

    assert has_user_namespaces(node(("", True), ("kata", False)))
    assert has_user_namespaces(node(("", True), ("nvidia", True)))
    for other in (node(), node(("", True), ("nvidia", False)), node(("runc", True)), {}):
        assert not has_user_namespaces(other)


def test_fields_that_exclude_a_user_namespace_are_named():
    assert host_namespaces(spec_of(hostPID=True, hostNetwork=True)) == ("hostNetwork", "hostPID")
    assert host_namespaces(spec_of(hostIPC=False)) == ()


def test_a_job_that_may_be_root_gets_a_user_namespace_with_protocol_3_alone():
    built = build_job_pod(a_job(), an_allocation(protocol=3))
    assert built.manifest["spec"]["hostUsers"] is False
    assert any("main may run as root" in notice for notice in built.notices)
    assert "hostUsers" not in build_job_pod(a_job(), an_allocation(protocol=2)).manifest["spec"]
    harmless = a_job(template={"spec": spec_of(UNPRIVILEGED)})
    assert "hostUsers" not in build_job_pod(harmless, an_allocation(protocol=3)).manifest["spec"]


def test_a_job_cannot_choose_its_sm_partition():
    job = a_job(env=[{"name": "CUDA_MPS_SM_PARTITION", "value": "GPU-1/other"}])
    built = build_job_pod(job, an_allocation())
    (container,) = containers_of(built.manifest)
    assert "CUDA_MPS_SM_PARTITION" not in env_of(container)
    assert "CUDA_MPS_SM_PARTITION" in built.overridden
