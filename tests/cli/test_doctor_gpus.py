"""What `partita doctor` says of GPUs: who has them, which one is tested, what the programs saw."""

from __future__ import annotations

from typing import Any

import pytest

from cli.objects import partition, server
from cli.test_doctor_checks import Json, facts, node, of
from partita.cli.doctor.check_result import CheckStatus
from partita.cli.doctor.gpu_objects import Place, choose_place, claim, job, pod
from partita.cli.doctor.gpu_results import fact_results, limit_results, steps_of
from partita.cli.doctor.node_checks import check_nodes
from partita.models import SharedGPUJob, crd


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
