"""What plans are made of in tests: a job's attempts, and what is around it."""

import dataclasses
from typing import Any

from partita.jobs.attempts import JobContext, JobFindings
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharingMode
from partita.models.quantities import format_time
from partita.scheduling.agent_reports import AgentReport
from partita.store.views import PodView
from support.builders import a_job, a_pod, a_server, an_allocation, at, pod_status
from support.claims import a_job_claim

NOW = at(100)
NO_RETRY = {"limit": 0, "outOfMemory": {"limit": 0}}


def around(*pods: Any, allocated: int | None = None, servers: int = 1, **fields: Any) -> JobContext:
    """A job's surroundings; `allocated` is the attempt that is allocated.

    `fields` are those of the context and of the agents' report, and the mode of its GPUs.
    """
    names = [f"shared-{n}" for n in range(servers)] if allocated else []
    mode = fields.pop("mode", SharingMode.TIME_SLICING)
    values: dict[str, Any] = {
        "pods": pods,
        "allocated": {name: an_allocation(attempt=allocated, since=at(1)) for name in names},
        "servers": {
            name: a_server(name, mode=mode, status={"uuid": f"GPU-{name}"}) for name in names
        },
        "claims": {allocated: a_job_claim(attempt=allocated, allocated=True)} if allocated else {},
        "node_exists": lambda node: node == "node-1",
        "ending": None,
    }
    found = {each.name for each in dataclasses.fields(JobFindings)} & fields.keys()
    values["findings"] = JobFindings(**{name: fields.pop(name) for name in found})
    told = {each.name for each in dataclasses.fields(AgentReport)} & fields.keys()
    values["report"] = AgentReport(**{name: fields.pop(name) for name in told})
    return JobContext(**(values | fields))


def gated(attempt: int = 1, **metadata: Any) -> PodView:
    """A Pod that was created for an allocation."""
    return a_pod(attempt=attempt, gated=True, metadata=metadata)


def attempt(number: int = 1, outcome: Outcome | None = None, **fields: Any) -> dict[str, Any]:
    """One attempt as the job's status has it."""
    default = {
        "pod": f"train-{number}",
        "node": "node-1",
        "servers": ["shared-0"],
        "memory": "8Gi",
        "bookedTime": format_time(at(1)),
        "startTime": format_time(at(2)),
    }
    if outcome is not None:
        default |= {"outcome": outcome.value, "endTime": format_time(at(50))}
    merged = {"number": number, **default, **fields}
    return {key: value for key, value in merged.items() if value is not None}


def with_attempts(*attempts: dict[str, Any], phase: Phase | None = None, **fields: Any) -> Any:
    status: dict[str, Any] = {"attempts": list(attempts)}
    if phase:
        status["phase"] = phase.value
    return a_job(status=status | fields.pop("status", {}), **fields)


def written(job: SharedGPUJob, made: Plan) -> SharedGPUJob:
    """The job once the plan's status has been written."""
    status = job.status.model_copy(
        update={
            "attempts": made.attempts,
            "phase": made.phase,
            "reason": made.reason,
            "message": made.message,
            "start_time": made.start_time,
            "completion_time": made.completion_time,
            "retry": made.retry,
            "retried_after": made.retried_after,
        }
    )
    return job.model_copy(update={"status": status})


def last(made: Plan) -> Attempt:
    return made.attempts[-1]


def ended(exit_code: int = 1, message: str = "", **fields: Any) -> dict[str, Any]:
    phase = "Failed" if exit_code else "Succeeded"
    times = {"started": at(2), "finished": at(60)}
    return pod_status(phase, exit_code=exit_code, message=message, **(times | fields))


def failed(message: str, before: int = 0, limit: str | None = None, **more: Any) -> Plan:
    """Plan a job of 8 GiB whose program ended so.

    So many attempts before it were system failures; with `limit`, a memory limit, reclaims.
    """
    number, earlier = before + 1, Outcome.RECLAIMED if limit else Outcome.SYSTEM_FAILURE
    job = with_attempts(
        *(attempt(n, earlier, memoryLimit=limit) for n in range(1, number)),
        attempt(number, memoryLimit=limit),
        retry=NO_RETRY,
    )
    values: dict[str, Any] = {"ended_since": {number: at(60)}, "allocated": number}
    values |= {"system_failures": 0 if limit else before, **more}
    return plan_job(job, around(a_pod(attempt=number, status=ended(1, message)), **values), NOW)
