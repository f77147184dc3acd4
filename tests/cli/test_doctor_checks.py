"""What `partita doctor` reads from nodes, labels and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from cli.objects import partition, server
from partita.cli.doctor.check_result import CheckResult, CheckStatus
from partita.cli.doctor.claim_checks import check_claims
from partita.cli.doctor.cluster_checks import check_cluster
from partita.cli.doctor.cluster_facts import ClusterFacts
from partita.cli.doctor.node_checks import check_nodes
from partita.models import crd

Json = dict[str, Any]


def node(
    labels: dict[str, str] | None = None,
    *,
    runtime: str = "containerd://2.1.0",
    kubelet: str = "v1.36.3",
    **allocatable: str,
) -> Json:
    resources = allocatable or {"nvidia.com/gpu": "2"}
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    meta = {"name": "gpu-1", "labels": {"nvidia.com/gpu.present": "true", **(labels or {})}}
    status = {"capacity": resources, "allocatable": resources, "nodeInfo": info}
    return {"metadata": meta, "spec": {}, "status": status}


def facts(*nodes: Json, version: str = "v1.36.3", **more: Any) -> ClusterFacts:
    namespaces = {"default": {"metadata": {"name": "default"}}}
    fields = {"pods": [], "namespaces": namespaces, **more}
    return ClusterFacts(version=version, nodes=list(nodes), **fields)


def of(findings: Any, check: str) -> CheckResult:
    return next(finding for finding in findings if finding.check == check)


def test_an_old_kubernetes_is_a_problem() -> None:
    found = of(check_cluster(facts(version="v1.29.4-gke.1"), "default"), "kubernetes")
    needs = "Partita needs 1.34 or newer: jobs get their GPUs by ResourceClaims"
    assert found.status is CheckStatus.PROBLEM
    assert found.found == f"v1.29.4-gke.1, and {needs}"


def test_missing_crds_are_named() -> None:
    first, *rest = crd.crds()
    found = of(check_cluster(facts(crds=rest), "default"), "crds")
    assert found.status is CheckStatus.PROBLEM
    assert found.found == f"missing: {first['metadata']['name']}"


def test_a_namespace_that_forbids_server_pods_is_a_problem() -> None:
    enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
    spaces = {
        "default": {"metadata": {"name": "default"}},
        "partita-servers": {"metadata": {"name": "partita-servers", "labels": enforce}},
    }
    found = of(check_cluster(facts(namespaces=spaces, crds=crd.crds()), "default"), "pod-security")
    assert found.status is CheckStatus.PROBLEM
    assert "enforces baseline, and server Pods need privileged" in found.found


def test_a_missing_namespace_is_a_problem() -> None:
    assert of(check_cluster(facts(), "nowhere"), "pod-security").status is CheckStatus.PROBLEM


def test_without_claims_nothing_gets_a_slice() -> None:
    (found,) = check_claims(facts(node(), version="v1.33.2"))
    assert (found.check, found.status) == ("claims", CheckStatus.PROBLEM)
    assert "nothing gets a slice" in found.found


def installed(**more: Any) -> ClusterFacts:
    """A cluster with a partition that has a GPU."""
    there: dict[str, Any] = {
        "crds": crd.crds(),
        "partitions": [partition()],
        "servers": [server("shared-0")],
        "slices": [{"spec": {"driver": "gpu.partita.dev", "pool": {"name": "shared-0"}}}],
        "device_classes": ["shared.gpu.partita.dev", "gpu.nvidia.com"],
        "mutating_policies": ["partita-limits"],
    }
    return facts(node(), **(there | more))


def test_a_cluster_whose_pods_get_slices_by_claims() -> None:
    found = {result.check: result for result in check_claims(installed())}
    assert set(found) == {"claims", "device-classes", "devices", "limits"}
    assert {result.status for result in found.values()} == {CheckStatus.OK}


@pytest.mark.parametrize(
    ("change", "check", "status", "said"),
    [
        ({"device_classes": []}, "device-classes", CheckStatus.PROBLEM, "shared.gpu.partita.dev"),
        ({"slices": []}, "devices", CheckStatus.PROBLEM, "no ResourceSlice: shared-0"),
        ({"mutating_policies": None}, "limits", CheckStatus.NOT_APPLICABLE, "not served"),
        ({"mutating_policies": []}, "limits", CheckStatus.NOT_APPLICABLE, "not installed"),
        ({"version": "v1.35.1"}, "claims", CheckStatus.OK, "amounts only by annotations"),
    ],
)
def test_what_keeps_claims_from_being_served(
    change: Json, check: str, status: CheckStatus, said: str
) -> None:
    found = of(check_claims(installed(**change)), check)
    assert found.status is status
    assert said in found.found


@pytest.mark.parametrize(
    ("body", "check", "status", "found"),
    [
        (node(), "gpu-source", CheckStatus.OK, "2 nvidia.com/gpu, 2 free"),
        (
            node(
                {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
            ),
            "gpu-source",
            CheckStatus.PROBLEM,
            "the plugin shares each GPU itself (time-slicing, 4 replicas)",
        ),
        (node(**{"nvidia.com/mig-1g.5gb": "7"}), "gpu-kind", CheckStatus.PROBLEM, "MIG is on"),
        (node({"nvidia.com/vgpu.present": "true"}), "gpu-kind", CheckStatus.PROBLEM, "are vGPUs"),
        (
            node({"nvidia.com/gpu.product": "NVIDIA-GB10"}),
            "gpu-kind",
            CheckStatus.PROBLEM,
            "NVIDIA-GB10 has no memory of its own",
        ),
        (node(cpu="8"), "gpu-source", CheckStatus.PROBLEM, "it offers no nvidia.com/gpu"),
        (node(runtime="docker://27.0"), "container-runtime", CheckStatus.PROBLEM, "docker://27.0"),
        (node(runtime="containerd://1.6.9"), "container-runtime", CheckStatus.PROBLEM, "1.6.9"),
        (
            node(runtime="containerd://1.7.27"),
            "container-runtime",
            CheckStatus.NOT_CHECKED,
            "only with `enable_cdi = true`",
        ),
        (node(runtime="cri-o://1.34.2"), "container-runtime", CheckStatus.OK, "cri-o://1.34.2"),
        (node(kubelet="v1.33.4"), "kubelet", CheckStatus.PROBLEM, "from 1.34 on"),
        (
            node({"nvidia.com/cuda.driver.major": "470", "nvidia.com/cuda.driver.minor": "82"}),
            "driver",
            CheckStatus.PROBLEM,
            "470.82, CUDA unknown: its MPS has no memory limits",
        ),
        (
            node({"nvidia.com/cuda.driver-version.full": "615.71.09"}),
            "driver",
            CheckStatus.OK,
            "memory limits by the driver, MPS protocol 3",
        ),
        (
            node({"nvidia.com/cuda.driver-version.full": "610.40"}),
            "driver",
            CheckStatus.OK,
            "isolated SM partitions",
        ),
        (node(), "driver", CheckStatus.NOT_CHECKED, "does not say its version"),
        (
            node({"nvidia.com/cuda.driver-version.full": "580.95.05"}),
            "driver-limits",
            CheckStatus.NOT_APPLICABLE,
            "they need driver r615",
        ),
    ],
)
def test_a_node_is_checked(body: Json, check: str, status: CheckStatus, found: str) -> None:
    finding = of(check_nodes(facts(body), ""), check)
    assert finding.status is status
    assert found in finding.found
    assert finding.remedy or status is not CheckStatus.PROBLEM


@pytest.mark.parametrize(
    ("mounted", "operator", "status", "found"),
    [
        ("/var/lib/kubelet", {}, CheckStatus.OK, "/var/lib/kubelet"),
        ("/var/lib/k0s/kubelet", {}, CheckStatus.PROBLEM, "/var/lib/k0s/kubelet, and Partita /var"),
        (
            "/var/lib/k0s/kubelet",
            {"args": ["run", "--kubelet-directory=/var/lib/k0s/kubelet"]},
            CheckStatus.OK,
            "/var/lib/k0s/kubelet",
        ),
        (
            "/var/lib/kubelet",
            {"env": [{"name": "PARTITA_KUBELET_DIRECTORY", "value": "/var/lib/k0s/kubelet"}]},
            CheckStatus.PROBLEM,
            "Partita /var/lib/k0s/kubelet",
        ),
        (None, {}, CheckStatus.NOT_CHECKED, "PARTITA_KUBELET_DIRECTORY"),
    ],
)
def test_kubelet_s_directory_is_that_which_other_pods_of_the_node_mount(
    mounted: str | None, operator: Json, status: CheckStatus, found: str
) -> None:
    volumes = [{"hostPath": {"path": f"{mounted}/device-plugins"}}] if mounted else []
    plugin = {
        "metadata": {"name": "plugin"},
        "spec": {"nodeName": "gpu-1", "volumes": volumes, "containers": [{"name": "plugin"}]},
    }
    running = {
        "metadata": {"name": "operator"},
        "spec": {"containers": [{"name": "operator", **operator}]},
    }
    known = facts(node(), pods=[plugin, running])
    finding = of(check_nodes(known, ""), "kubelet-directory")
    assert finding.status is status
    assert found in finding.found


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ({"runtime_classes": ["nvidia"]}, CheckStatus.OK),
        ({}, CheckStatus.PROBLEM),
        ({"partitions": []}, CheckStatus.NOT_APPLICABLE),
    ],
)
def test_a_partition_that_asks_for_the_runtime_class_needs_it(
    known: Json, status: CheckStatus
) -> None:
    asking = {"metadata": {"name": "a100"}, "spec": {"deviceInjection": "RuntimeClass"}}
    found = facts(node(), **({"partitions": [asking]} | known))
    assert of(check_nodes(found, ""), "runtime-class").status is status


def test_what_may_not_be_read_leaves_the_checks_of_a_node_open_that_need_it() -> None:
    found = check_nodes(facts(node(), unreadable={"pods": "pods is forbidden"}), "")
    open_ = {f.check: f.found for f in found if f.status is CheckStatus.NOT_CHECKED}
    assert open_["selinux"] == open_["kubelet-directory"] == "you may not list pods"


@pytest.mark.parametrize(
    ("kind", "status"), [("spc_t", CheckStatus.OK), ("container_t", CheckStatus.PROBLEM)]
)
def test_admission_that_changes_the_selinux_type_of_a_server_pod_is_a_problem(
    kind: str, status: CheckStatus
) -> None:
    changed = {
        "metadata": {"name": "gpus-0", "labels": {"partita.dev/component": "server"}},
        "spec": {
            "nodeName": "gpu-1",
            "securityContext": {"seLinuxOptions": {"type": kind}},
            "containers": [{"name": "agent"}],
        },
    }
    finding = of(check_nodes(facts(node(), pods=[changed]), ""), "selinux")
    assert (finding.status, kind in finding.found) == (status, True)


@pytest.mark.parametrize(
    ("known", "name", "found"),
    [
        (facts(), "", "no node has an NVIDIA GPU that Kubernetes knows"),
        (facts(node()), "nowhere", "there is no node nowhere"),
    ],
)
def test_without_a_node_there_is_nothing_to_check(
    known: ClusterFacts, name: str, found: str
) -> None:
    (result,) = check_nodes(known, name)
    assert (result.check, result.status, result.found) == ("nodes", CheckStatus.PROBLEM, found)
