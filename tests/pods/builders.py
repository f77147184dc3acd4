"""Jobs and grants for the tests."""

from pathlib import Path
from typing import Any

import yaml

from partita.models import SharedGPUJob, SharingMode
from partita.models.quantities import parse_memory
from partita.pods.allocation import JobAllocation
from partita.pods.environment import environment, shared_variables
from partita.pods.job_pod import build_job_pod, gpu_containers

GOLDEN = Path(__file__).parent / "golden"
UUID = "GPU-8a56a4bc-e184-4c1f-9b4e-5cb3a0d4c5f1"
GI = 1 << 30


def an_allocation(**changes: Any) -> JobAllocation:
    values: dict[str, Any] = {
        "uuids": (UUID,),
        "memory": 8 * GI,
        "total_memory": 40 * GI,
        "mode": SharingMode.MPS,
    }
    return JobAllocation(**(values | changes))


def a_job(
    *, template: dict[str, Any] | None = None, env: list[dict[str, Any]] | None = None, **spec: Any
) -> SharedGPUJob:
    container: dict[str, Any] = {"name": "main", "image": "train"}
    if env is not None:
        container["env"] = env
    return SharedGPUJob.parse(
        {
            "metadata": {"name": "train", "namespace": "vision", "uid": "u-1"},
            "spec": {
                "partition": "a100",
                "template": template or {"spec": {"containers": [container]}},
                **spec,
            },
        }
    )


def read_job(case: Path) -> SharedGPUJob:
    return SharedGPUJob.parse(yaml.safe_load((case / "job.yaml").read_text()))


def read_allocation(case: Path) -> JobAllocation:
    raw = yaml.safe_load((case / "allocation.yaml").read_text())
    return JobAllocation(
        attempt=raw["attempt"],
        uuids=tuple(raw["uuids"]),
        memory=parse_memory(raw["memory"]),
        total_memory=parse_memory(raw["totalMemory"]),
        memory_limit=parse_memory(raw["memoryLimit"]) if "memoryLimit" in raw else None,
        driver_limits=raw.get("driverLimits", False),
        thread_percent=raw["threadPercent"],
        mode=SharingMode(raw["mode"]),
        oversubscription=raw.get("oversubscription", False),
        device_injection=raw.get("deviceInjection", "Auto"),
        yields=raw.get("yields", False),
    )


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def claimed_variables(job: SharedGPUJob, allocation: JobAllocation) -> dict[str, str]:
    """Return the variables that all containers of a job get with its claims."""
    ours = environment(
        job.spec.framework,
        allocation,
        processes=job.spec.processes,
        containers=gpu_containers(job.spec.template.unpack()),
    )
    return shared_variables(ours, containers_of(build_job_pod(job, allocation).manifest))


def effective_env(job: SharedGPUJob, allocation: JobAllocation) -> list[dict[str, Any]]:
    """Return the variables of each container of a job: a claim's replace the Pod's."""
    pod = build_job_pod(job, allocation).manifest
    return [env_of(c) | claimed_variables(job, allocation) for c in containers_of(pod)]


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container.get("env") or ()}
