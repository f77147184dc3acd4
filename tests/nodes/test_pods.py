"""What Pods ask of simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from partita_policies.types import Sharing
from partita_testcluster.nodes.gpu import GIB
from partita_testcluster.nodes.simulated_pods import BadPodError, Exit, SimulatedPod, parse_pod

SLICE = "nvidia.com/gpu"


def pod(
    annotations: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    owners: list[Any] | None = None,
    **body: Any,
) -> SimulatedPod:
    container = {
        "name": "main",
        "env": [{"name": k, "value": v} for k, v in (env or {}).items()],
        "resources": {"limits": {SLICE: "1", "cpu": "2"}},
    }
    meta = {"uid": "u", "name": "p", "namespace": "n", "ownerReferences": owners or []}
    return parse_pod(
        {
            "metadata": meta | {"annotations": annotations},
            "spec": {"containers": [container, container | {"env": []}]},
        }
        | body
    )


def sim(**annotations: str) -> dict[str, str]:
    return {f"sim.partita.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}


def test_a_pod_without_annotations_does_something_sensible() -> None:
    parsed = pod()
    task = parsed.task(Sharing.MPS, 1)
    assert parsed.wants.resources == {SLICE: 2, "cpu": 4000}
    assert (parsed.job_uid, parsed.server_name, parsed.node) == ("u", "", "")
    assert parsed.path == "/api/v1/namespaces/n/pods/p"
    assert (task.work.duration, task.work.memory, task.work.utilisation) == (10.0, (GIB,), (30.0,))
    assert task.work.memory_limit is None
    assert (task.processes, task.exit) == (1, Exit(0, ""))


def test_annotations_are_read() -> None:
    annotations = sim(
        duration="1m30s", memory="1Gi, 6Gi,6Gi", gpu="20,80", exit_code="3", message="no data"
    ) | {"partita.dev/job-uid": "job", "partita.dev/processes": "2"}
    parsed = pod(annotations)
    task = parsed.task(Sharing.MPS, 1)
    assert parsed.job_uid == "job"
    assert task.work.duration == 90.0
    assert task.work.memory == (GIB, 6 * GIB, 6 * GIB)
    assert task.work.utilisation == (20.0, 80.0)
    assert (task.processes, task.exit) == (2, Exit(3, "no data"))


def test_half_of_what_is_allocated_is_used_and_spread_over_the_gpus() -> None:
    assert pod({"partita.dev/gpu-memory": "8192Mi"}).task(Sharing.EXCLUSIVE, 2).work.memory == (
        2 * GIB,
    )


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (sim(duration="soon"), "'soon'; write a duration such as"),
        (sim(memory="1Gi,lots"), "'1Gi,lots'; write an amount such as"),
        (sim(memory=""), "''; write an amount such as"),
        (sim(gpu="101"), "'101'; write a percentage"),
        (sim(gpu="much"), "'much'; write a percentage"),
        (sim(exit_code="300"), "'300'; write a number from 0 to 255"),
        ({"partita.dev/processes": "0"}, "'0'; write a number above 0"),
    ],
)
def test_bad_annotations_say_what_to_write(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(BadPodError) as error:
        pod(annotations).task(Sharing.MPS, 1)
    assert f"annotation {next(iter(annotations))}: {message}" in str(error.value)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("0=4096M", 8 * GIB), ("1=1G", None), ("", None), ("GPU-12345678=4G,0=4G", None)],
)
def test_mps_limits_each_process(limit: str, expected: int | None) -> None:
    limited = pod({"partita.dev/processes": "2"}, {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit})
    assert limited.task(Sharing.MPS, 1).work.memory_limit == expected
    assert limited.task("TimeSlicing", 1).work.memory_limit is None


def test_a_server_pod_is_told_how_to_share() -> None:
    owner = {"kind": "GPUServer", "name": "a-0", "uid": "server", "controller": True}
    parsed = pod(owners=[owner], env={"PARTITA_MODE": "TimeSlicing"})
    server = parsed.server()
    assert parsed.server_name == "a-0"
    assert (server.name, server.sharing) == ("a-0", "TimeSlicing")
    assert pod(owners=[owner]).server().sharing == "MPS"


def test_a_server_pod_told_nonsense_says_so() -> None:
    with pytest.raises(BadPodError, match="PARTITA_MODE: 'Half'; write one of MPS"):
        pod(env={"PARTITA_MODE": "Half"}).server()


def test_rules_for_nodes_are_read() -> None:
    parsed = pod(spec={"containers": [], "nodeSelector": {"zone": "a"}})
    assert parsed.wants.rules.unmet("n", {})
    assert not parsed.wants.rules.unmet("n", {"zone": "a"})


def test_only_a_running_pod_has_started() -> None:
    times = {"startTime": "2026-11-21T15:00:00Z"}
    assert pod(status=times | {"phase": "Pending"}).started is None
    started = pod(status=times | {"phase": "Running"}).started
    assert started is not None
    assert started.hour == 15
