"""Computes each policy's current decision about a job, with the operator's scheduling cycle."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from partita.cli.connection import Lists
from partita.decide.cycle import run_cycle
from partita.decide.cycle_result import CycleResult
from partita.decide.partition_state import PartitionState
from partita.decide.policy_runner import PolicyRunner
from partita.informer.state import State
from partita.kube.client import JOBS, PODS, SERVERS
from partita.models.partition import PolicySpec
from partita.reconcile.job_reconciler import JobReconciler
from partita_policies.errors import PolicyError
from partita_policies.registry import available, create
from partita_policies.types import Job

__all__ = ["PolicyAnswer", "ask_policies", "put_back"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """The decision of one policy about the job.

    Attributes
    ----------
    role
        `active`, `shadow`, `fallback` or empty.
    decision
        `start` on `gpus`, co-located with `beside`; `wait` because of `reason`; or `fail` if the
        policy does not decide.
    """

    policy: str
    role: str
    decision: Literal["start", "wait", "fail"]
    gpus: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


def put_back(lists: Lists, uid: str) -> Lists:
    """Return the cluster with this job waiting: not suspended and without an allocation."""
    changed = {kind: list(items) for kind, items in lists.items()}
    changed[PODS] = [pod for pod in changed[PODS] if uid not in _owners(pod)]
    changed[SERVERS] = [_without(server, uid) for server in changed[SERVERS]]
    changed[JOBS] = [
        _waiting(job) if job["metadata"]["uid"] == uid else job for job in changed[JOBS]
    ]
    return changed


def _owners(pod: Json) -> set[str]:
    return {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}


def _without(server: Json, uid: str) -> Json:
    if uid not in (server.get("status") or {}).get("allocations", {}):
        return server
    server = deepcopy(server)
    del server["status"]["allocations"][uid]
    return server


def _waiting(job: Json) -> Json:
    job = deepcopy(job)
    job["spec"]["suspend"] = False
    status = job.get("status") or {}
    ended = [attempt for attempt in status.get("attempts") or [] if attempt.get("outcome")]
    job["status"] = {"phase": "Queued", "attempts": ended}
    return job


async def ask_policies(state: State, uid: str, now: datetime) -> list[PolicyAnswer]:
    """Run one cycle in memory with each installed policy; the active policy comes first.

    Returns
    -------
    list of PolicyAnswer
        Empty if the job's partition does not exist, or if the job can never be placed there.
    """
    partition = state.partitions.get(state.jobs[uid].spec.partition)
    if partition is None:
        return []
    name = partition.metadata.name
    jobs = JobReconciler(state)
    jobs.refresh_largest(name)
    for job in list(state.jobs_of(name)):
        jobs.reconcile(job.metadata.uid, now)
    waiting = dict(jobs.waiting[name])
    if uid not in waiting:
        return []
    roles = _roles(partition.spec.policy)
    others = sorted(available().keys() - roles.keys())
    answers = []
    for policy in [*roles, *others]:
        spec = _spec(policy, partition.spec.policy)
        role = roles.get(policy, "")
        try:
            create(policy, dict(spec.parameters))
        except PolicyError as error:
            answers.append(PolicyAnswer(policy, role, "fail", message=str(error)))
            continue
        under = partition.model_copy(
            update={"spec": partition.spec.model_copy(update={"policy": spec})}
        )
        result = await run_cycle(
            under,
            state,
            waiting=waiting,
            released=jobs.releases,
            memory=PartitionState(PolicyRunner(spec)),
            now=now,
        )
        answers.append(_answer(policy, role, result, state, waiting[uid]))
    return answers


def _roles(spec: PolicySpec) -> dict[str, str]:
    roles = {spec.name: "active"}
    for name in spec.shadow:
        roles.setdefault(name, "shadow")
    roles.setdefault(spec.fallback, "fallback")
    return roles


def _spec(policy: str, own: PolicySpec) -> PolicySpec:
    if policy == own.name:
        return own.model_copy(update={"shadow": ()})
    return PolicySpec(name=policy, fallback=own.fallback, max_bypasses=own.max_bypasses)


def _answer(policy: str, role: str, result: CycleResult, state: State, job: Job) -> PolicyAnswer:
    if result.answer is not None and result.answer.failure:
        return PolicyAnswer(policy, role, "fail", message=result.answer.failure)
    placed = {placed.id: gpus for placed, gpus in result.placed}
    gpus = placed.get(job.id)
    if gpus is None:
        why = result.why.get(job.id)
        return PolicyAnswer(
            policy,
            role,
            "wait",
            reason=why.reason.value if why else "",
            message=why.message if why else "",
        )
    beside = {running_job.job for gpu in gpus for running_job in result.allocated[gpu].running} | {
        other for other, where in placed.items() if set(where) & set(gpus)
    }
    return PolicyAnswer(policy, role, "start", tuple(gpus), _names(beside - {job.id}, state.jobs))


def _names(uids: set[str], jobs: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(jobs[uid].key if uid in jobs else uid for uid in uids))
