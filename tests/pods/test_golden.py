"""Whole Pods, compared with files that a person can read."""

from pathlib import Path

import pytest
import yaml

from partita.models import GPUPartition, GPUServer
from partita.pods.gpu_claim import build_gpu_claim_template
from partita.pods.job_pod import build_job_pod
from partita.pods.probe_pod import build_probe_pod
from partita.pods.server_pod import ServerPodSettings, build_server_pod
from pods.builders import GOLDEN, claimed_variables, read_allocation, read_job

CASES = sorted(p.parent for p in GOLDEN.glob("*/job.yaml"))
SERVERS = sorted(p.parent for p in GOLDEN.glob("servers/*/server.yaml"))
CLAIMED = [GOLDEN / "servers" / "claimed"]
PROBES = [GOLDEN / "servers" / name for name in ("mps", "selective")]
SETTINGS = ServerPodSettings(
    namespace="partita-system", image="partita:test", service_account="partita-agent"
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_job_s_pod_is_as_in_its_golden_file(case, golden):
    built = build_job_pod(read_job(case), read_allocation(case))
    golden(case / "pod.yaml", built.manifest)
    golden(case / "variables.yaml", claimed_variables(read_job(case), read_allocation(case)))
    golden(case / "notes.yaml", {"overridden": [*built.overridden], "notices": [*built.notices]})


@pytest.mark.parametrize("case", SERVERS, ids=lambda c: c.name)
def test_a_server_s_pod_is_as_in_its_golden_file(case, golden):
    golden(case / "pod.yaml", build_server(case))


@pytest.mark.parametrize("case", PROBES, ids=lambda c: c.name)
def test_a_probe_pod_is_as_in_its_golden_file(case, golden):
    golden(case / "probe.yaml", build_probe_pod(*read_server(case), SETTINGS))


@pytest.mark.parametrize("case", CLAIMED, ids=lambda c: c.name)
def test_the_template_of_a_server_s_claim_is_as_in_its_golden_file(case, golden):
    _, partition = read_server(case)
    golden(case / "template.yaml", build_gpu_claim_template(partition, SETTINGS.namespace))


def test_there_is_a_golden_file_for_each_framework_and_mode():
    names = {c.name for c in CASES}
    for framework in ("none", "tensorflow", "pytorch", "jax", "cupy"):
        for mode in ("mps", "driver", "timeslicing", "exclusive", "oversubscription"):
            assert f"{mode}-{framework}" in names


def build_server(case: Path) -> dict:
    return build_server_pod(*read_server(case), SETTINGS)


def read_server(case: Path) -> tuple[GPUServer, GPUPartition]:
    server = GPUServer.parse(yaml.safe_load((case / "server.yaml").read_text()))
    return server, GPUPartition.parse(yaml.safe_load((case / "partition.yaml").read_text()))
