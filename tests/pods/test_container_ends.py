"""How a container of a Pod failed last, and whether its GPU memory was not enough."""

from typing import Any

import pytest

from partita.models.quantities import format_time
from partita.pods.container_ends import ContainerFailure, last_failure
from support.builders import GIB, at

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def terminated(
    code: int = 1, message: str = "", *, since: float = 0, until: float = 10, reason: str = "Error"
) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": format_time(at(since)),
            "finishedAt": format_time(at(until)),
        }
    }


def status(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containerStatuses": list(containers), **more}


def container(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "main", "state": state, **({"lastState": last} if last else {})}


RUNNING = {"running": {"startedAt": format_time(at(11))}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


def test_a_pod_without_a_failed_container_has_none() -> None:
    assert last_failure({}) is None
    assert last_failure(status(container(RUNNING))) is None
    assert last_failure(status(container(RUNNING, terminated(0)))) is None


def test_a_container_that_runs_again_has_failed_before() -> None:
    found = last_failure(status(container(RUNNING, terminated(message=OUT_OF_MEMORY))))
    assert found == ContainerFailure(at(0), running=True, out_of_memory=True)


@pytest.mark.parametrize("state", [BACK_OFF, {}])
def test_a_container_that_waits_for_its_restart_does_not_run(state: dict[str, Any]) -> None:
    found = last_failure(status(container(state, terminated(message=OUT_OF_MEMORY))))
    assert found is not None
    assert not found.running


def test_the_last_end_of_a_container_counts() -> None:
    now = terminated(message="ValueError", since=20, until=30)
    found = last_failure(status(container(now, terminated(message=OUT_OF_MEMORY))))
    assert found == ContainerFailure(at(20))


def test_gpu_memory_comes_before_other_failures_of_the_pod() -> None:
    other = container({}, terminated(message="ValueError", since=20, until=30))
    sidecar = container({}, terminated(message=OUT_OF_MEMORY))
    found = last_failure(status(other, initContainerStatuses=[sidecar]))
    assert found is not None
    assert (found.out_of_memory, found.started_at) == (True, at(0))


def test_the_memory_of_the_node_is_another_matter() -> None:
    killed = terminated(137, reason="OOMKilled", message=OUT_OF_MEMORY)
    assert last_failure(status(container({}, killed))) is None


@pytest.mark.parametrize(
    ("end", "peak", "ran_out"),
    [
        (terminated(message=OUT_OF_MEMORY), None, True),
        (terminated(message="ValueError"), 8 * GIB, False),
        (terminated(), 8 * GIB * 96 // 100, True),
        (terminated(), 8 * GIB * 90 // 100, False),
        (terminated(), None, False),
        (terminated(137), 9 * GIB, True),
        (terminated(137), 8 * GIB, False),
        (terminated(message="CUDA_ERROR_MPS_CLIENT_TERMINATED"), 9 * GIB, True),
    ],
)
def test_without_a_message_the_measured_peak_decides(
    end: dict[str, Any], peak: int | None, *, ran_out: bool
) -> None:
    found = last_failure(status(container({}, end)))
    assert found is not None
    assert found.ran_out(8 * GIB, peak) is ran_out
