"""Jobs and Pods with claims as users see them: where they run and why they wait."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from partita.claims.new_allocations import granted_entry
from partita.claims.workload_view import WorkloadPhase, WorkloadPlace, WorkloadView, job_view
from partita.constants import (
    ANNOTATION_MEMORY,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_THREADS,
)
from partita.models import Allocation, SharedGPUJob
from partita.models.device_class import class_target
from partita.models.quantities import parse_memory
from partita.pods.own_claims import NO_CLAIM, WITHOUT_CLAIM
from partita.scheduling.claim_request import (
    application_of,
    is_lasting,
    priority_of,
    request_of_claim,
)
from partita.scheduling.idle import unused_since
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import Reason, not_admitted
from partita.scheduling.request import Request, request_of_job
from partita.scheduling.resolved_request import resolve
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.views import PodView
from partita.store.workload_pod import WorkloadPod
from partita_policies.types import Job

__all__ = [
    "all_workloads",
    "claim_request",
    "find_workloads",
    "job_workload",
    "pod_of",
    "workloads_of",
]

_WHILE_RUNNING = frozenset({Reason.IDLE.value, Reason.OUT_OF_MEMORY.value})
"""Reasons of a claim that has a slice and a problem."""


def workloads_of(partition: str, state: State) -> list[WorkloadView]:
    """Return the workloads of a partition: those with a slice, and then the queue."""
    allocated = (server.status.allocations for server in state.servers_of(partition))
    return _views({*state.claims_of(partition)}.union(*allocated), state)


def all_workloads(state: State) -> list[WorkloadView]:
    """Return all workloads: those with a slice, and then those that wait.

    Pods that wait for nothing are among these: they have Partita's scheduling gate, and no claim
    with whose allocation it would be removed.
    """
    unclaimed = (_unclaimed(pod) for pod in state.pods.values() if _has_gate_alone(pod, state))
    return _views(state.allocated_claims() | state.claims.keys(), state, unclaimed)


def _views(
    uids: Iterable[str], state: State, more: Iterable[WorkloadView] = ()
) -> list[WorkloadView]:
    found = (_workload(uid, state) for uid in uids)
    return sorted([*(view for view in found if view is not None), *more], key=_order)


def _has_gate_alone(pod: PodView, state: State) -> bool:
    if pod.owner_kind or not pod.gated or pod.deleting:
        return False
    named = (state.claim_named(pod.namespace, one.claim) for one in pod.workload.claims)
    return all(one.claim for one in pod.workload.claims) and not any(named)


def _unclaimed(pod: PodView) -> WorkloadView:
    return WorkloadView(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        pod=pod.name,
        claim="",
        partition="",
        application=application_of(pod.workload),
        lasting=is_lasting(pod.workload),
        phase="Queued",
        reason=NO_CLAIM,
        message=WITHOUT_CLAIM,
        created=pod.workload.created,
    )


def _order(view: WorkloadView) -> tuple[bool, bool, bool, int, float, str]:
    created = view.created.timestamp() if view.created else 0.0
    unplaced = view.position is None
    return view.waits, view.phase == "Gated", unplaced, view.position or 0, created, view.key


def _workload(uid: str, state: State) -> WorkloadView | None:
    """Return the workload of a claim, or of the allocation of a claim that is deleted.

    None if there is none of these, if the claim is that of a job, or if its Pod has ended.
    """
    if state.user_of(uid) != uid:
        return None
    claim, allocated = state.claims.get(uid), state.allocated(uid)
    pod = pod_of(uid, state)
    if claim is not None and not allocated:
        allocated = _granted(claim, pod, state)
    entry = next(iter(allocated.values()), None)
    if claim is None:
        return _deleted(uid, entry, pod, state) if entry is not None else None
    if pod is not None and not (pod.alive or entry):
        return None
    target = class_target(claim.device_class, state.partitions)
    phase, reason, message = _phase(claim, pod, entry)
    memory, limit, threads = _asked(claim, pod)
    if memory is None and entry is None:
        wanted = _wanted(claim_request(uid, state), state)
        memory = wanted.memory if wanted is not None and not wanted.alone else None
    workload = pod.workload if pod is not None else WorkloadPod()
    applies = application_of(workload)
    return WorkloadView(
        uid=uid,
        namespace=claim.namespace,
        name=pod.name if pod is not None else claim.owner_pod or claim.name,
        pod=pod.name if pod is not None else claim.owner_pod,
        claim=claim.name,
        partition=target.partition if target else "",
        application=applies or (entry.application if entry is not None else ""),
        lasting=entry.lasting if entry else is_lasting(workload),
        phase=phase,
        reason=reason,
        message=message,
        created=claim.created,
        position=claim.position if phase == "Queued" else None,
        expected=claim.expected if phase == "Queued" else None,
        memory=entry.memory if entry else memory,
        memory_limit=entry.memory_limit if entry else limit,
        slice=target.slice if target else "",
        gpus=claim.count,
        threads=entry.thread_percent if entry else threads,
        priority=priority_of(workload),
        place=_place(uid, allocated, pod, state),
    )


def _granted(claim: ClaimView, pod: PodView | None, state: State) -> dict[str, Allocation]:
    """Return what a claim itself says of its slices, for readers who may not read GPUServers."""
    if (found := claim.allocation) is None:
        return {}
    return {
        one.gpu_server: granted_entry(claim, one, pod, found.since or claim.created)
        for one in found.slices
        if one.gpu_server not in state.servers
    }


def pod_of(uid: str, state: State) -> PodView | None:
    """Return the Pod for which a claim is allocated, or the first that uses it."""
    pods = state.pods_of(uid)
    chosen = {entry.pod_uid for entry in state.allocated(uid).values()}
    return min(pods, key=lambda pod: (pod.uid not in chosen, not pod.alive), default=None)


def _deleted(uid: str, entry: Allocation, pod: PodView | None, state: State) -> WorkloadView:
    """Return the workload of an allocation whose claim is deleted."""
    allocated = state.allocated(uid)
    return WorkloadView(
        uid=uid,
        namespace=entry.namespace,
        name=entry.pod,
        pod=entry.pod,
        claim=entry.name,
        partition=state.servers[next(iter(allocated))].spec.partition,
        application=entry.application,
        lasting=entry.lasting,
        phase="Running" if pod is not None and pod.alive else "Ending",
        reason="ClaimDeleted",
        message="its claim is deleted, so its slice is released when its Pod has ended",
        created=entry.since,
        memory=entry.memory,
        memory_limit=entry.memory_limit,
        gpus=len(allocated),
        threads=entry.thread_percent,
        place=_place(uid, allocated, pod, state),
    )


def _phase(
    claim: ClaimView, pod: PodView | None, entry: Allocation | None
) -> tuple[WorkloadPhase, str, str]:
    """Return the phase of a workload, with reason and message if it waits for something."""
    if entry is None:
        if pod is not None and pod.other_gates:
            why = not_admitted(pod.other_gates[0])
            return "Gated", why.reason.value, why.message
        reason, message = _said(claim)
        return "Queued", reason or Reason.SCHEDULING.value, message or "it has just been queued"
    if pod is None:
        started = bool(claim.reserved_for)  # a reader without Pods
        return ("Running" if started else "Assigned"), "", ""
    if not pod.alive:
        return "Ending", "", "its Pod has ended, and its slice is being released"
    if pod.startup is not None:
        return "Assigned", pod.startup.reason, pod.startup.message
    reason, message = _said(claim)
    return ("Running", reason, message) if reason in _WHILE_RUNNING else ("Running", "", "")


def _said(claim: ClaimView) -> tuple[str, str]:
    """Return reason and message of a claim, as the operator has written them."""
    reason, _, message = claim.status.partition(": ")
    return reason, message


def _asked(claim: ClaimView, pod: PodView | None) -> tuple[int | None, int | None, int | None]:
    """Return the memory, the ceiling and the threads that a claim and its Pod ask for."""
    notes = pod.workload.annotations if pod is not None else {}
    memory, threads = claim.memory, claim.threads
    return (
        _amount(notes.get(ANNOTATION_MEMORY, "")) if memory is None else memory,
        _amount(notes.get(ANNOTATION_MEMORY_LIMIT, "")),
        _amount(notes.get(ANNOTATION_THREADS, "")) if threads is None else threads,
    )


def claim_request(uid: str, state: State) -> Request | None:
    """Return what a claim asks for; None if that is not known, or cannot be read."""
    claim, pod = state.claims.get(uid), pod_of(uid, state)
    target = class_target(claim.device_class, state.partitions) if claim is not None else None
    if claim is None or target is None or pod is None:
        return None
    refused = state.profiles.refused(claim.namespace, application_of(pod.workload))
    request = request_of_claim(claim, pod.workload, target, refused=refused)
    return request if isinstance(request, Request) else None


def _wanted(request: Request | None, state: State) -> Job | None:
    """Return what a request would get now: grown or learnt; None for a slice, or if never met."""
    partition = state.partitions.get(request.partition) if request is not None else None
    if request is None or partition is None or request.slice:
        return None
    profile = state.profiles.profile(request.namespace, request.application)
    wanted = resolve(request, partition, profile=profile, largest=Largest())
    return wanted if isinstance(wanted, Job) else None


def job_workload(job: SharedGPUJob, state: State) -> WorkloadView:
    """Return a job with the memory that it has, had or would get, and what is measured of it."""
    if (assigned := job.status.assignment) is not None:
        view = job_view(job, assigned)
        return view if view.ended else replace(view, place=_measured_place(view, state))
    wanted = _wanted(request_of_job(job, job.status.attempts), state)
    if wanted is not None and wanted.alone and job.spec.gpu_memory is None:
        wanted = replace(wanted, memory=0)
    return job_view(job, wanted)


def _amount(text: str) -> int | None:
    """Return the amount in an annotation; None if it is missing or invalid."""
    try:
        return parse_memory(text) if text else None
    except ValueError:
        return None


def _place(
    uid: str, allocated: dict[str, Allocation], pod: PodView | None, state: State
) -> WorkloadPlace | None:
    """Return where the slices of a workload are; of its GPUs, the most used one counts."""
    if not allocated:
        return None
    servers = [state.servers[name] for name in allocated if name in state.servers]
    uses = [use for server in servers if (use := server.status.uses.get(uid)) is not None]
    measured = [use.gpu_utilization for use in uses if use.gpu_utilization is not None]
    return WorkloadPlace(
        server=", ".join(allocated),
        node=servers[0].status.node if servers else pod.node if pod is not None else "",
        since=next(iter(allocated.values())).since,
        used=max((use.memory for use in uses), default=None),
        peak=max((use.peak_memory for use in uses), default=None),
        utilization=max(measured, default=None),
        idle_since=unused_since(uid, servers),
    )


def _measured_place(view: WorkloadView, state: State) -> WorkloadPlace | None:
    """Return the place of a job with what the agents measure of its attempt."""
    holder = state.holder(view.uid)
    measured = _place(holder, state.allocated(holder), None, state)
    if measured is None or view.place is None:
        return view.place
    return replace(
        view.place,
        used=measured.used,
        peak=measured.peak or view.place.peak,
        utilization=measured.utilization,
    )


def find_workloads(namespace: str, kind: str, name: str, state: State) -> Iterator[WorkloadView]:
    """Yield the workloads that a name stands for.

    Parameters
    ----------
    kind
        `SharedGPUJob`, `Pod`, `ResourceClaim`, or the kind of a controller of Pods, such as
        `Deployment`.
    """
    if kind == "SharedGPUJob":
        key = f"{namespace}/{name}"
        yield from (job_workload(job, state) for job in state.jobs.values() if job.key == key)
        return
    for view in all_workloads(state):
        if view.namespace != namespace:
            continue
        names = {"Pod": view.pod, "ResourceClaim": view.claim}
        if kind in names:
            fits = names[kind] == name
        else:
            pods = state.pods_of(view.uid)
            owners = {(p.workload.controller, p.workload.application) for p in pods}
            fits = any(f"{kind}/{name}" in names for names in owners)
        if fits:
            yield view
