"""Small questions that the resources answer about themselves."""

import pytest
from pydantic import ValidationError

from partita.models import ApplicationProfile, GPUPartition, GPUServer, Phase
from partita.models.template import PodTemplate

GIB = 1 << 30


@pytest.fixture
def partition():
    return GPUPartition.parse(
        {
            "metadata": {"name": "shared"},
            "spec": {
                "gpus": 2,
                "sharing": {"maxJobsPerGPU": 8},
                "slices": [
                    {"name": "small", "memory": "5Gi"},
                    {"name": "large", "memory": "20Gi", "threadPercent": 50},
                ],
                "quotas": [{"namespace": "vision", "memory": "40Gi", "jobs": 3}],
            },
        }
    )


def test_a_partition_finds_its_slices_by_name(partition):
    large = partition.spec.slice("large")
    assert (large.memory, large.thread_percent) == (20 * GIB, 50)
    assert partition.spec.slice("huge") is None


def test_a_partition_finds_the_quota_of_a_namespace(partition):
    quota = partition.spec.quota("vision")
    assert (quota.memory, quota.jobs, quota.weight) == (40 * GIB, 3, 1)
    assert partition.spec.quota("speech") is None


def test_a_partition_reads_and_writes_the_spelling_of_its_crd(partition):
    assert partition.spec.sharing.max_jobs_per_gpu == 8
    assert partition.dump()["spec"]["sharing"]["maxJobsPerGPU"] == 8


def test_a_server_tells_its_conditions():
    server = GPUServer.parse(
        {
            "metadata": {"name": "shared-0"},
            "spec": {"partition": "shared"},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "AgentReporting"},
                    {"type": "Faulted", "status": "Unknown"},
                ]
            },
        }
    )
    assert server.status.condition("Ready").reason == "AgentReporting"
    assert server.status.holds("Ready")
    assert not server.status.holds("Faulted")
    assert not server.status.holds("Drained")


def profile(*measurements):
    return ApplicationProfile.parse(
        {
            "spec": {
                "application": "resnet",
                "measurements": [
                    {
                        "environment": {"product": product},
                        "duration": "60s",
                        "runs": runs,
                        "steps": [{"gpuMemory": "1Gi"}, {"gpuMemory": "3Gi"}],
                    }
                    for product, runs in measurements
                ],
            }
        }
    ).spec


def test_a_profile_prefers_what_was_measured_on_the_same_product():
    chosen = profile(("A100", 1), ("T4", 9)).measurement("A100")
    assert chosen.environment.product == "A100"


def test_a_profile_falls_back_on_what_rests_on_the_most_runs():
    assert profile(("A100", 1), ("T4", 9)).measurement("H200").environment.product == "T4"
    assert profile(("A100", 5), ("T4", 2)).measurement().environment.product == "A100"


def test_a_profile_without_measurements_tells_nothing():
    assert profile().measurement("A100") is None


def test_a_measurement_knows_its_peak():
    assert profile(("A100", 1)).measurement().peak_memory == 3 * GIB


@pytest.mark.parametrize("amount", [-1, "-1Gi"])
def test_a_negative_amount_is_refused(amount):
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "application": "app",
            "measurements": [{"duration": "1s", "steps": [{"gpuMemory": amount}]}],
        },
    }
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        ApplicationProfile.parse(body)


def test_a_template_may_leave_its_metadata_empty():
    template = PodTemplate.model_validate({"metadata": {"labels": None}, "spec": {}})
    assert (template.labels, template.annotations, template.containers) == ({}, {}, [])


def test_only_two_phases_are_an_end():
    assert {phase for phase in Phase if phase.finished} == {Phase.SUCCEEDED, Phase.FAILED}
