"""Computes each policy's current decision about a job or claim, with the scheduling cycle."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from partita.accounting.daily_usage import DailyUsage
from partita.accounting.past_shares import past_shares
from partita.claims.claim_reconciler import ClaimReconciler
from partita.console.policy_answer import PolicyAnswer
from partita.console.slowdowns import holder_id, slowest
from partita.jobs.job_reconciler import JobReconciler
from partita.kube.client import CLAIMS, JOBS, PODS, SERVERS
from partita.models.partition import PolicySpec
from partita.process.reconcilers import Reconcilers
from partita.scheduling.cycle import Cycle
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.demand import Demand
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.policy_runner import PolicyRunner
from partita.store.listing import Lists
from partita.store.state import State
from partita_policies.errors import PolicyError
from partita_policies.registry import available, create
from partita_policies.types import GPU, Job, RunningJob, Sharing

__all__ = ["ask_policies", "demand_on", "put_back"]

Json = dict[str, Any]


def put_back(lists: Lists, uid: str) -> Lists:
    """Return the cluster with this job or claim waiting.

    A job is not suspended, the Pod of a claim has no scheduling gate, and neither has an
    allocation.
    """
    changed = {kind: list(items) for kind, items in lists.items()}
    changed[SERVERS] = [_without(server, uid) for server in changed[SERVERS]]
    claim = next((one for one in changed.get(CLAIMS, ()) if one["metadata"]["uid"] == uid), None)
    if claim is not None:
        changed[CLAIMS] = [
            {**one, "status": {}} if one is claim else one for one in changed[CLAIMS]
        ]
        changed[PODS] = [_unbound(pod) if _uses(pod, claim) else pod for pod in changed[PODS]]
        return changed
    changed[PODS] = [pod for pod in changed[PODS] if uid not in _owners(pod)]
    changed[JOBS] = [
        _waiting(job) if job["metadata"]["uid"] == uid else job for job in changed[JOBS]
    ]
    return changed


def _owners(one: Json) -> set[str]:
    return {owner["uid"] for owner in one["metadata"].get("ownerReferences") or ()}


def _uses(pod: Json, claim: Json) -> bool:
    """Return whether a claim was made for a Pod, or the Pod names it."""
    if pod["metadata"]["uid"] in _owners(claim):
        return True
    named = {c.get("resourceClaimName") for c in pod["spec"].get("resourceClaims") or ()}
    same_namespace = pod["metadata"]["namespace"] == claim["metadata"]["namespace"]
    return same_namespace and claim["metadata"]["name"] in named


def _unbound(pod: Json) -> Json:
    spec = {k: v for k, v in pod["spec"].items() if k not in {"nodeName", "schedulingGates"}}
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or []
    return {**pod, "spec": spec, "status": {"phase": "Pending", "resourceClaimStatuses": made}}


def _without(server: Json, uid: str) -> Json:
    status = server.get("status") or {}
    entries = status.get("allocations", {}).items()
    others = {claim: one for claim, one in entries if uid not in {claim, one.get("jobUID")}}
    return {**server, "status": {**status, "allocations": others}}


def _waiting(job: Json) -> Json:
    attempts = (job.get("status") or {}).get("attempts") or []
    ended = [attempt for attempt in attempts if attempt.get("outcome")]
    spec = {**job["spec"], "suspend": False}
    return {**job, "spec": spec, "status": {"phase": "Queued", "attempts": ended}}


def demand_on(partition: str, state: State, now: datetime) -> Demand:
    """Return what waits for the GPUs of a partition, as the operator finds it."""
    jobs = JobReconciler(state)
    both = Reconcilers(jobs, ClaimReconciler(state, jobs.demand))
    jobs.refresh_largest(partition)
    for uid in state.users_in(partition):
        both.of(uid).reconcile(uid, now)
    return jobs.demand


async def ask_policies(
    state: State, uid: str, name: str, now: datetime, usage: Iterable[DailyUsage] = ()
) -> list[PolicyAnswer]:
    """Run one cycle in memory with each installed policy; the active policy comes first.

    Parameters
    ----------
    uid
        UID of a job or claim.
    name
        Name of its partition.
    usage
        The records of usage, for the order with `fairness.halfLife`.

    Returns
    -------
    list of PolicyAnswer
        Empty if it or its partition does not exist, or if it can never be placed there.
    """
    demand, partition = demand_on(name, state, now), state.partitions.get(name)
    waiting = demand.waiting[name]
    if partition is None or uid not in waiting:
        return []
    roles = _roles(partition.spec.policy)
    others = sorted(available().keys() - roles.keys())
    sharing = Sharing(partition.spec.sharing.mode)
    past = past_shares(usage, partition, state, now)
    answers = []
    for policy in [*roles, *others]:
        spec = _spec(policy, partition.spec.policy)
        asked = PolicyAnswer(policy, roles.get(policy, ""), "wait")
        try:
            create(policy, dict(spec.parameters))
        except PolicyError as error:
            answers.append(replace(asked, decision="fail", message=str(error)))
            continue
        under = partition.model_copy(
            update={"spec": partition.spec.model_copy(update={"policy": spec})}
        )
        result = await Cycle(
            under,
            state,
            waiting=waiting,
            released=demand.releases,
            memory=PartitionState(PolicyRunner(spec), past_shares=past),
            now=now,
        ).run()
        answers.append(_answer(asked, result, sharing, state, waiting[uid]))
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


def _answer(
    asked: PolicyAnswer, result: CycleResult, sharing: Sharing, state: State, job: Job
) -> PolicyAnswer:
    """Return what a policy decided about a job; `asked` has the policy's name and role."""
    if result.answer is not None and result.answer.failure:
        return replace(asked, decision="fail", message=result.answer.failure)
    gpus = {placed.id: where for placed, where in result.placed}.get(job.id)
    if gpus is None:
        why = result.why.get(job.id)
        if why is None:
            return asked
        return replace(asked, reason=why.reason.value, message=why.message)
    there: dict[GPU, list[Job | RunningJob]] = {
        result.allocated[gpu]: [
            *result.allocated[gpu].running,
            *(other for other, where in result.placed if gpu in where),
        ]
        for gpu in gpus
    }
    others = (other for jobs in there.values() for other in jobs if holder_id(other) != job.id)
    return replace(
        asked,
        decision="start",
        gpus=tuple(gpus),
        beside=tuple(sorted({_name(other, state) for other in others})),
        slowdown=slowest(job.id, there, sharing),
    )


def _name(other: Job | RunningJob, state: State) -> str:
    if isinstance(other, Job):
        return other.name
    return next(f"{e.namespace}/{e.user}" for e in state.allocated(other.job).values())
