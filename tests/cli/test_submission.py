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


MAIN = {"name": "main", "image": "trainer:1"}


def test_a_command_becomes_one_container() -> None:
    metadata, spec = of_command("train", "trainer:1", ["python", "train.py"], {"EPOCHS": "3"})
    body = shared_job(metadata, spec, {"partition": "shared", "gpuMemory": "6Gi", "gpus": None})
    env = [{"name": "EPOCHS", "value": "3"}]
    main = {"name": "train", "image": "trainer:1", "command": ["python", "train.py"], "env": env}
    template = {"spec": {"containers": [main]}}
    assert body == {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": "train"},
        "spec": {"partition": "shared", "gpuMemory": "6Gi", "template": template},
    }


def test_a_whole_gpu_is_taken_out_and_the_rest_stays() -> None:
    limits = {"nvidia.com/gpu": "1", "cpu": "2"}
    metadata, spec, notes = of_manifest(pod(container(**limits), serviceAccountName="trainer"))
    assert metadata == {"name": "old", "namespace": "team-a"}
    kept = container(cpu="2")
    assert spec["template"]["spec"] == {"containers": [kept], "serviceAccountName": "trainer"}
    assert notes == []
    assert "gpus" not in spec


HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}


@pytest.mark.parametrize(
    ("asked", "notes", "fields"),
    [
        ({"nvidia.com/gpu": "4"}, {}, {"gpus": 4}),
        (HAMI, {}, {"gpuMemory": "3000Mi", "threadPercent": 30}),
        (HAMI | {"nvidia.com/gpu": 2}, {},
         {"gpus": 2, "gpuMemory": "3000Mi", "threadPercent": 30}),
        ({"nvidia.com/vgpu": 1, "nvidia.com/gpumem": 500}, {}, {"gpuMemory": "500Mi"}),
        ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": "5k"}, {},
         {"gpuMemory": "5000Mi"}),
        ({"aliyun.com/gpu-mem": 3}, {}, {"gpuMemory": "3Gi"}),
        ({"nvidia.com/mig-1g.5gb": 1}, {}, {"gpuMemory": "5Gi"}),
        ({}, {"gpu-memory": "2048"}, {"gpuMemory": "2Gi"}),
        ({"partita.dev/gpu-memory": "6Gi", "partita.dev/gpu-threads": "50"},
         {"partita.dev/processes": "2", "partita.dev/application": "resnet"},
         {"gpuMemory": "6Gi", "threadPercent": 50, "processes": 2, "application": "resnet"}),
    ],
)  # fmt: skip
def test_amounts_of_several_systems_become_those_of_the_job(
    asked: dict[str, Any], notes: dict[str, str], fields: dict[str, Any]
) -> None:
    body = pod(container(**asked))
    body["metadata"]["annotations"] = notes
    _, spec, told = of_manifest(body)
    assert spec.pop("template") == {"spec": {"containers": [MAIN]}}
    assert (spec, told) == (fields, [])


def test_the_containers_that_run_at_the_same_time_are_added_up() -> None:
    def asking(name: str, memory: int, **fields: Any) -> dict[str, Any]:
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory}
        return {**container(**limits), "name": name, **fields}

    convert, sidecar = asking("convert", 10000), asking("embed", 4000, restartPolicy="Always")
    train = asking("train", 4000)
    _, spec, notes = of_manifest(pod(train, initContainers=[convert, sidecar]))
    assert (spec["gpuMemory"], spec["processes"], "gpus" in spec) == ("10000Mi", 2, False)
    (note,) = notes
    assert "each of their processes may use 5000Mi" in note
    assert "one asks for 10000Mi: write --gpu-memory 20000Mi" in note
    _, spec, _ = of_manifest(pod(train, initContainers=[sidecar, convert]))
    assert spec["gpuMemory"] == "14000Mi"


def test_what_nobody_can_translate_is_told() -> None:
    nic = {"name": "nic", "resourceClaimTemplateName": "rdma"}
    body = pod(
        container(**{"nvidia.com/gpumem-percentage": 50, "rdma/hca": 1}),
        restartPolicy="Always",
        schedulerName="hami-scheduler",
        schedulingGates=[{"name": "kueue.x-k8s.io/admission"}],
        resourceClaims=[nic],
    )
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    body["metadata"]["annotations"] = {"gpu-fraction": "0.5", "nvidia.com/use-gputype": "A100"}
    _, spec, notes = of_manifest(body)
    told = "\n".join(notes)
    for words in ("gpumem-percentage: 50 is left out", "spec.retry", "hami-scheduler is left out",
                  "kueue.x-k8s.io/admission is left out", "claim nic stays", "rdma/hca: 1 stays",
                  "gpu-fraction is left out", "use-gputype is left out"):  # fmt: skip
        assert words in told
    kept = MAIN | {"resources": {"limits": {"rdma/hca": 1}, "claims": [{"name": "nic"}]}}
    assert spec["template"] == {"spec": {"containers": [kept], "resourceClaims": [nic]}}


def test_a_claim_of_partita_becomes_its_amounts() -> None:
    uses = MAIN | {"resources": {"claims": [{"name": "gpu"}]}}
    entry = {"name": "gpu", "resourceClaimTemplateName": "partita-shared-6gi-50"}
    gate = {"name": "partita.dev/allocation"}
    _, spec, notes = of_manifest(pod(uses, resourceClaims=[entry], schedulingGates=[gate]))
    assert spec.pop("template") == {"spec": {"containers": [MAIN]}}
    assert spec == {"gpuMemory": "6Gi", "threadPercent": 50, "partition": "shared"}
    assert notes == []


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
        priority=0,
        ephemeralContainers=[{"name": "debugger", "image": "busybox:1"}],
        activeDeadlineSeconds=9,
        volumes=[{"name": "kube-api-access-x1", "projected": {}}],
    )
    body["metadata"]["labels"] = {"team": "a", "job-name": "old", "batch.kubernetes.io/x": "y"}
    generated = "kubectl.kubernetes.io/last-applied-configuration"
    body["metadata"]["annotations"] = {generated: "{}", "hami.io/bind-phase": "success"}
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
        ({}, "it has no kind: write a Pod or a Job"),
        ({"kind": ["Pod"]}, "it has no kind"),
        ({"kind": "Pod", "spec": None}, "no containers"),
        (batch_job(parallelism=4), "its parallelism is 4: a SharedGPUJob runs one Pod"),
        (batch_job(completions=2), "its completions is 2"),
        (pod(container(**{"nvidia.com/gpu": "1.5"})), "write a whole number"),
    ],
)
def test_what_cannot_be_a_job_says_why(body: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsuitableError, match=said):
        of_manifest(body)
