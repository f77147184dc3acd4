"""Whole Pods, compared with files that a person can read."""

from pathlib import Path

import pytest
import yaml

from partita.models import GPUPartition, GPUServer
from partita.pods import ServerPodSettings, build_job_pod, build_server_pod
from pods.builders import GOLDEN, containers_of, read_allocation, read_job

CASES = sorted(p.parent for p in GOLDEN.glob("*/job.yaml"))
SERVERS = sorted(p.parent for p in GOLDEN.glob("servers/*/server.yaml"))
SETTINGS = ServerPodSettings(
    namespace="partita-system", image="partita:test", service_account="partita-agent"
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_job_s_pod_is_as_in_its_golden_file(case, golden):
    built = build_job_pod(read_job(case), read_allocation(case))
    golden(case / "pod.yaml", built.manifest)
    golden(case / "notes.yaml", {"overridden": [*built.overridden], "notices": [*built.notices]})


@pytest.mark.parametrize("case", SERVERS, ids=lambda c: c.name)
def test_a_server_s_pod_is_as_in_its_golden_file(case, golden):
    golden(case / "pod.yaml", build_server(case))


@pytest.mark.parametrize("case", SERVERS, ids=lambda c: c.name)
def test_exactly_one_container_of_a_server_takes_the_gpu(case):
    taking = [
        c["name"]
        for c in containers_of(build_server(case))
        if "nvidia.com/gpu" in c["resources"].get("limits", {})
    ]
    assert taking == ["agent"]


def test_there_is_a_golden_file_for_each_framework_and_mode():
    names = {c.name for c in CASES}
    for framework in ("none", "tensorflow", "pytorch", "jax", "cupy"):
        for mode in ("mps", "timeslicing", "exclusive", "oversubscription"):
            assert f"{mode}-{framework}" in names


def build_server(case: Path) -> dict:
    server = GPUServer.parse(yaml.safe_load((case / "server.yaml").read_text()))
    partition = GPUPartition.parse(yaml.safe_load((case / "partition.yaml").read_text()))
    return build_server_pod(server, partition, SETTINGS)
