"""What a Pod or a Job becomes when it is to share a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from partita.cli.jobs.submission import UnsuitableError, of_command, of_manifest, shared_job


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    wanted = list(containers) or [{"name": "main", "image": "trainer:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "old", "namespace": "team-a"},
        "spec": {"restartPolicy": "Never", "containers": wanted, **spec},
    }


def batch_job(**spec: Any) -> dict[str, Any]:
    template = {"spec": pod()["spec"]}
    return {"kind": "Job", "metadata": {"name": "old"}, "spec": {"template": template, **spec}}


def container(**limits: Any) -> dict[str, Any]:
    return {"name": "main", "image": "trainer:1", "resources": {"limits": limits}}


def test_a_command_becomes_one_container() -> None:
    metadata, spec = of_command("train", "trainer:1", ["python", "train.py"], {"EPOCHS": "3"})
    body = shared_job(metadata, spec, {"partition": "shared", "gpuMemory": "6Gi", "gpus": None})
    assert body == {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": "train"},
        "spec": {
            "partition": "shared",
            "gpuMemory": "6Gi",
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "train",
                            "image": "trainer:1",
                            "command": ["python", "train.py"],
                            "env": [{"name": "EPOCHS", "value": "3"}],
                        }
                    ]
                }
            },
        },
    }


def test_claims_of_other_drivers_stay() -> None:
    claims = [{"name": "nic"}]
    body = pod(
        container(**{"nvidia.com/gpu": "1"}),
        resourceClaims=[{"name": "nic", "resourceClaimTemplateName": "rdma"}],
    )
    body["spec"]["containers"][0]["resources"]["claims"] = claims
    _, spec, _ = of_manifest(body)
    (kept,) = spec["template"]["spec"]["containers"]
    assert kept["resources"] == {"claims": claims}


def test_a_whole_gpu_is_taken_out_and_the_rest_stays() -> None:
    limits = {"nvidia.com/gpu": "1", "cpu": "2"}
    metadata, spec, notes = of_manifest(pod(container(**limits), serviceAccountName="trainer"))
    assert metadata == {"name": "old", "namespace": "team-a"}
    assert spec["template"]["spec"] == {
        "containers": [
            {"name": "main", "image": "trainer:1", "resources": {"limits": {"cpu": "2"}}}
        ],
        "serviceAccountName": "trainer",
    }
    assert notes == []
    assert "gpus" not in spec


def test_what_hami_was_asked_for_becomes_memory_and_threads() -> None:
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    _, spec, _ = of_manifest(pod(container(**asked)))
    assert (spec["gpuMemory"], spec["threadPercent"]) == ("3000Mi", 30)
    assert "resources" not in spec["template"]["spec"]["containers"][0]


def test_several_gpus_stay_several() -> None:
    _, spec, _ = of_manifest(pod(container(**{"nvidia.com/gpu": "4"})))
    assert spec["gpus"] == 4


def test_what_nobody_can_translate_is_told() -> None:
    _, _, notes = of_manifest(
        pod(container(**{"nvidia.com/mig-1g.5gb": 1}), restartPolicy="Always")
    )
    assert any("mig-1g.5gb" in note and "--gpu-memory" in note for note in notes)
    assert any("spec.retry" in note for note in notes)


def test_a_jobs_own_limits_are_kept() -> None:
    body = batch_job(
        backoffLimit=200, activeDeadlineSeconds=60, ttlSecondsAfterFinished=5, suspend=True
    )
    _, spec, _ = of_manifest(body)
    assert spec["retry"] == {"limit": 100}
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (60, 5)
    assert spec["suspend"] is True


def test_what_the_api_server_added_to_a_live_pod_is_left_out() -> None:
    token = {"name": "kube-api-access-x1", "mountPath": "/var/run/secrets"}
    body = pod(
        {"name": "main", "image": "trainer:1", "volumeMounts": [token], "resources": {}},
        nodeName="node-1",
        activeDeadlineSeconds=9,
        volumes=[{"name": "kube-api-access-x1", "projected": {}}],
    )
    body["metadata"]["labels"] = {"team": "a", "job-name": "old", "batch.kubernetes.io/x": "y"}
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    body["status"] = {"phase": "Running"}
    _, spec, _ = of_manifest(body)
    assert spec["template"] == {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"containers": [{"name": "main", "image": "trainer:1"}]},
    }
    assert spec["activeDeadlineSeconds"] == 9


def test_what_a_person_asks_for_goes_over_what_was_found() -> None:
    metadata, spec, _ = of_manifest(pod(container(**{"nvidia.com/gpumem": 3000})))
    body = shared_job(metadata, spec, {"gpuMemory": "8Gi", "partition": "shared"})
    assert body["spec"]["gpuMemory"] == "8Gi"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "Deployment"}, "it is a Deployment: write a Pod or a Job"),
        ({}, "it is a None"),
        ({"kind": "Pod", "spec": None}, "no containers"),
        (batch_job(parallelism=4), "its parallelism is 4: a SharedGPUJob runs one Pod"),
        (batch_job(completions=2), "its completions is 2"),
        (pod(container(**{"nvidia.com/gpu": "1.5"})), "write a whole number"),
    ],
)
def test_what_cannot_be_a_job_says_why(body: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsuitableError, match=said):
        of_manifest(body)
