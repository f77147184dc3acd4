"""What `partita doctor` reads from nodes, labels and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from cli.objects import partition, server
from partita.cli.doctor.check_result import CheckResult, CheckStatus
from partita.cli.doctor.claim_checks import check_claims
from partita.cli.doctor.cluster_checks import check_cluster
from partita.cli.doctor.cluster_facts import ClusterFacts
from partita.cli.doctor.gpu_objects import Place, choose_place, claim, job, pod
from partita.cli.doctor.gpu_results import fact_results, limit_results, steps_of
from partita.cli.doctor.node_checks import check_nodes
from partita.models import SharedGPUJob, crd

Json = dict[str, Any]


def node(
    labels: dict[str, str] | None = None,
    *,
    runtime: str = "containerd://2.1.0",
    kubelet: str = "v1.36.3",
    **allocatable: str,
) -> Json:
    resources = allocatable or {"nvidia.com/gpu": "2"}
    return {
        "metadata": {
            "name": "gpu-1",
            "labels": {"nvidia.com/gpu.present": "true", **(labels or {})},
        },
        "spec": {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime},
        },
    }


def facts(*nodes: Json, version: str = "v1.36.3", **more: Any) -> ClusterFacts:
    namespaces = more.pop("namespaces", {"default": {"metadata": {"name": "default"}}})
    return ClusterFacts(
        version=version,
        nodes=list(nodes),
        pods=more.pop("pods", []),
        namespaces=namespaces,
        **more,
    )


def of(findings: Any, check: str) -> CheckResult:
    return next(finding for finding in findings if finding.check == check)


def test_an_old_kubernetes_is_a_problem() -> None:
    found = of(check_cluster(facts(version="v1.29.4-gke.1"), "default"), "kubernetes")
    assert (found.status, found.found) == (
        CheckStatus.PROBLEM,
        "v1.29.4-gke.1, and Partita needs 1.34 or newer: jobs get their GPUs by ResourceClaims",
    )


def test_missing_crds_are_named() -> None:
    first, *rest = crd.crds()
    found = of(check_cluster(facts(crds=rest), "default"), "crds")
    assert (found.status, found.found) == (
        CheckStatus.PROBLEM,
        f"missing: {first['metadata']['name']}",
    )


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
    (found,) = check_claims(facts(node(), version="v1.33.2"), "")
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
    found = {result.check: result for result in check_claims(installed(), "")}
    assert set(found) == {"claims", "device-classes", "devices", "limits", "cdi"}
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
    found = of(check_claims(installed(**change), ""), check)
    assert found.status is status
    assert said in found.found


def test_what_may_not_be_read_is_no_problem_of_the_cluster() -> None:
    hidden = dict.fromkeys(("deviceclasses", "resourceslices"), "forbidden")
    found = check_claims(installed(device_classes=[], slices=[], unreadable=hidden), "")
    assert CheckStatus.PROBLEM not in {result.status for result in found}


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
    assert bool(finding.remedy) is (status is CheckStatus.PROBLEM)


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
    assert open_["selinux"] == open_["kubelet-directory"] == "cannot read pods: pods is forbidden"


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


def dra_slice(*types: str) -> Json:
    devices = [
        {"name": f"{kind}-{number}", "attributes": {"type": {"string": kind}}}
        for number, kind in enumerate(types)
    ]
    pool = {"name": "gpu-1"}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "gpu-1", "pool": pool, "devices": devices}
    return {"spec": spec}


def holding(device: str, driver: str = "gpu.nvidia.com") -> Json:
    result = {"driver": driver, "pool": "gpu-1", "device": device}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def test_whole_gpus_by_dra_are_counted_and_free_ones_are_those_that_no_claim_has() -> None:
    claims = [holding("gpu-0"), holding("gpu-1", driver="other.example.org"), {"status": {}}]
    known = facts(node(cpu="8"), slices=[dra_slice("gpu", "gpu", "mig")], claims=claims)
    found = of(check_nodes(known, ""), "gpu-source")
    assert found.status is CheckStatus.OK
    assert found.found.startswith("2 GPUs by DRA, 1 free")


def test_gpus_that_are_offered_twice_are_a_problem() -> None:
    found = of(check_nodes(facts(node(), slices=[dra_slice("gpu")]), ""), "gpu-source")
    assert found.status is CheckStatus.PROBLEM
    assert found.found == "its GPUs are offered twice: 2 nvidia.com/gpu, and 1 by DRA"


def test_a_free_gpu_of_dra_is_tested_by_a_pod_with_a_claim() -> None:
    slices = [dra_slice("gpu")]
    place = choose_place(facts(node(cpu="8"), slices=slices), "")
    assert place == Place("gpu-1", claimed=True)
    built = pod("check", "default", place, "partita:test", runtime_class="")
    (wanted,) = built["spec"]["resourceClaims"]
    assert wanted["resourceClaimName"] == claim("check", "default")["metadata"]["name"]
    assert built["spec"]["containers"][0]["resources"] == {"claims": [{"name": wanted["name"]}]}
    taken = facts(node(cpu="8"), slices=slices, claims=[holding("gpu-0")])
    assert choose_place(taken, "").reason


@pytest.mark.parametrize(
    ("hook", "status"),
    [
        ("Applied", CheckStatus.OK),
        ("NotApplied", CheckStatus.PROBLEM),
        ("Failed", CheckStatus.PROBLEM),
        ("Unknown", CheckStatus.NOT_CHECKED),
    ],
)
def test_limits_of_the_driver_are_what_the_probe_pod_showed(hook: str, status: CheckStatus) -> None:
    body = server("s-0", on="gpu-1")
    body["status"]["capabilities"] = {"limitHook": hook}
    found = check_nodes(facts(node(), servers=[body]), "")
    assert of(found, "driver-limits").status is status


def test_a_gpu_that_a_pod_has_is_not_free() -> None:
    holder = {
        "metadata": {"name": "holder"},
        "spec": {
            "nodeName": "gpu-1",
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        },
        "status": {"phase": "Running"},
    }
    assert choose_place(facts(node()), "").node == "gpu-1"
    assert choose_place(facts(node(), pods=[holder]), "").reason == (
        "no GPU is free in the cluster, and no partition has room for two small jobs"
    )
    holder["status"] = {"phase": "Succeeded"}
    assert choose_place(facts(node(), pods=[holder]), "").node == "gpu-1"


def test_a_partition_with_room_is_preferred_to_a_whole_gpu() -> None:
    installed = {"crds": crd.crds(), "partitions": [partition("shared")]}
    one = server("s-0", on="gpu-1")
    assert choose_place(facts(node(), servers=[one], **installed), "").partition == "shared"
    assert choose_place(facts(node(), servers=[one], **installed), "gpu-2").reason
    unready = server("s-0", on="gpu-1", ready=False)
    assert choose_place(facts(node(), servers=[unready], **installed), "").partition == ""


def test_the_objects_meet_the_models_and_pod_security() -> None:
    place = choose_place(facts(node()), "")
    whole = pod("name", "default", place, "partita", runtime_class="nvidia")
    assert whole["spec"]["runtimeClassName"] == "nvidia"
    asked = job("name", "default", Place("gpu-1", "shared"), "partita", "limit", hold=15)
    read = SharedGPUJob.parse({"kind": "SharedGPUJob", **asked})
    assert read.spec.gpu_memory == 1 << 30
    for spec in (whole["spec"], asked["spec"]["template"]["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def line(**found: Any) -> Json:
    refusal = "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"
    return {"share": 1024, "granted": 960, "refusal": refusal, **found}


FINE = {"allocations": 9, "failures": 0, "error": ""}


@pytest.mark.parametrize(
    ("limit", "neighbour", "expected"),
    [
        (line(), FINE, (CheckStatus.OK, CheckStatus.OK)),
        # A limit by the driver includes memory for contexts.
        (line(granted=1472), FINE, (CheckStatus.OK, CheckStatus.OK)),
        (line(granted=2048, refusal=""), FINE, (CheckStatus.PROBLEM, CheckStatus.OK)),
        (line(granted=1600), FINE, (CheckStatus.PROBLEM, CheckStatus.OK)),
        (
            line(refusal="cuMemAlloc_v2: CUDA_ERROR_LAUNCH_FAILED"),
            FINE,
            (CheckStatus.PROBLEM, CheckStatus.OK),
        ),
        (
            line(),
            {"allocations": 3, "failures": 1, "error": "x"},
            (CheckStatus.OK, CheckStatus.PROBLEM),
        ),
        (
            line(),
            {"allocations": 0, "failures": 0, "error": ""},
            (CheckStatus.OK, CheckStatus.PROBLEM),
        ),
    ],
)
def test_what_the_programs_said_is_judged(
    limit: Json, neighbour: Json, expected: tuple[CheckStatus, CheckStatus]
) -> None:
    assert tuple(one.status for one in limit_results(limit, neighbour)) == expected


def test_a_compute_mode_without_programs_is_a_problem() -> None:
    seen = {"driver": "580.1", "cuda": 13010, "product": "A100", "computeMode": "Prohibited"}
    assert of(fact_results(seen), "compute-mode").status is CheckStatus.PROBLEM


def test_lines_that_are_no_results_are_ignored() -> None:
    log = b'warning\n{"step": "limit", "granted": 1}\n{broken\n{"other": 1}\n'
    assert steps_of(log) == {"limit": {"step": "limit", "granted": 1}}
