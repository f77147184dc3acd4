"""Explains a SharedGPUJob, a Pod, a claim, or the Pods of a controller."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from partita.accounting.daily_usage import DailyUsage
from partita.accounting.usage_recorder import usage_for_order
from partita.claims.workload_view import WorkloadView, job_view
from partita.claims.workloads import find_workloads
from partita.cli import terminal
from partita.cli.cluster_state import list_visible, read_visible, state_of
from partita.cli.connection import open_cluster, readable
from partita.cli.explain.planned import Planned
from partita.cli.explain.target import ExplainTarget
from partita.cli.jobs.find_job import check_namespace, find_job
from partita.cli.options import Cluster
from partita.cli.terminal import UserError
from partita.console.explanation import (
    Explanation,
    explain_job,
    explain_workload,
    visible_names,
)
from partita.console.framework_budgets import FrameworkBudget
from partita.console.policy_answer import PolicyAnswer
from partita.console.slowdowns import ObservedSlowdown, Slowdown
from partita.console.workload_settings import Setting
from partita.constants import ANNOTATION_FRAMEWORK
from partita.kube.client import CLAIMS, JOBS, PODS, PROFILES, Kube
from partita.kube.connect import current_namespace
from partita.kube.errors import ForbiddenError
from partita.kube.operator_lease import check_operator
from partita.models import SharedGPUJob, SharedGPUJobStatus
from partita.models.partition_status import GPUSummary
from partita.pods.framework_memory import named_frameworks
from partita.store.listing import Lists
from partita.store.state import State
from partita_policies.amounts import DominantShare

__all__ = ["ExplainOutput", "ExplainedRequest", "explain"]

_EXPLAINED = 3
"""Maximum number of Pods of one controller that are explained; the others are listed."""

_Explained = tuple[Explanation, list[PolicyAnswer]]


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """A job or a Pod: where it is, what it waits for, what slows it down, and what it needs.

    Of more than 3 Pods of a controller, only `workload` is known of the others.
    """

    namespace: str
    name: str
    workload: WorkloadView
    status: SharedGPUJobStatus | None = None
    """The status of a job; null for a Pod."""
    settings: tuple[Setting, ...] = ()
    """What a Pod asks for, and where that is written."""
    beside: Sequence[str] | None = None
    """`namespace/name` of what has a slice of the same GPU now; null without a GPU that the user
    may read."""
    slowdown: Slowdown | None = None
    """The prediction for its GPU; null if it has none, or if the GPU is not ready."""
    observed: ObservedSlowdown | None = None
    """How much longer runs of its application beside others took; of a job that has ended, its own
    run. Null if its run alone was never measured."""
    slowed: str = ""
    """What is predicted and observed, as a sentence; empty if nothing is known."""
    needs: str = ""
    """How much GPU memory it needs, as a sentence."""
    advice: str = ""
    """What to change; empty if nothing."""
    enforcement: str = ""
    """What limits its GPU memory: `Driver` or `Client`; empty if it is not known."""
    frameworks: tuple[FrameworkBudget, ...] = ()
    """What to set in frameworks, by the GPUs that it has or could get."""
    named_frameworks: tuple[str, ...] = ()
    """Those that its images, commands, variables or settings name; only these are printed."""
    namespace_share: DominantShare | None = None
    """The share of the partition that its namespace has; null if that is not known."""
    gpus: tuple[GPUSummary, ...] = ()
    """The GPUs of a job's partition, as far as they may be read."""
    policies: Sequence[PolicyAnswer] = ()
    """With --policies, what each policy would do with it now; otherwise, after its end and without
    the rights, empty."""


ExplainOutput = list[ExplainedRequest] | list[Planned]
"""With --filename it is a list of what is planned."""


async def explain(target: ExplainTarget, cluster: Cluster, output: str, *, policies: bool) -> None:
    """Print why jobs or workloads wait or where they run.

    Parameters
    ----------
    policies
        Whether to print what each policy would do with them now.
    """
    async with open_cluster(*cluster) as kube:
        job = None
        if target.is_job:
            job = readable(SharedGPUJob, await find_job(kube, target.name, cluster))
        if job is not None and job.status.phase is not None and job.status.phase.finished:
            profiles, _ = await list_visible(kube, PROFILES, job.metadata.namespace)
            about = explain_job(job, state_of({PROFILES: profiles}), datetime.now(UTC))
            found: list[_Explained] = [(about, [])]
            others: list[WorkloadView] = []
            notes: list[str] = []
        else:
            namespace = (
                job.metadata.namespace
                if job is not None
                else target.name.namespace or current_namespace(*cluster)
            )
            found, others, notes = await _look(kube, target, namespace, job, policies=policies)
    if output == "table":
        from partita.cli.explain.text import explanation_text

        terminal.display(explanation_text(found, others))
    else:
        data = [_data(*each) for each in found]
        data += [ExplainedRequest(view.namespace, view.name, view) for view in others]
        terminal.dump(data, output)
    for note in notes:
        terminal.warn(note)


async def _look(
    kube: Kube,
    target: ExplainTarget,
    namespace: str,
    job: SharedGPUJob | None,
    *,
    policies: bool,
) -> tuple[list[_Explained], list[WorkloadView], list[str]]:
    """Return what is explained, further Pods of the same controller, and what is missing."""
    lists, missing = await read_visible(kube, namespace, () if job else {CLAIMS, PODS})
    notes = [problem] if (problem := await check_operator(kube)) else []
    if missing:
        asked = ", and the policies were not asked" if policies else ""
        notes.append(
            "Neighbours, slowdown and settings of frameworks are not all shown"
            f"{asked}: you may not list {', '.join(missing)}."
        )
    sees = _sees(namespace, missing)
    state, now = state_of(lists), datetime.now(UTC)
    if job is not None:
        views = [job_view(job)]
    else:
        named = find_workloads(namespace, target.kind, target.name.name, state)
        views = sorted(named, key=lambda view: (not view.waits, view.name))
    if not views:
        await check_namespace(kube, namespace)
        raise UserError(_missing(target, namespace, lists, state))
    usage: list[DailyUsage] = []
    if policies and not missing:
        try:
            usage = await usage_for_order(kube, state)
        except ForbiddenError as error:
            notes.append(f"The policies were asked without past use: {error.message}.")
    found: list[_Explained] = []
    for view in views[:_EXPLAINED]:
        about = (
            explain_job(job, state, now) if job is not None else explain_workload(view, state, now)
        )
        about = replace(about, named_frameworks=_named_frameworks(view, job, lists))
        answers: list[PolicyAnswer] = []
        if about.beside is not None:
            about = replace(about, beside=visible_names(about.beside, sees))
        if missing:
            about = replace(about, namespace_share=None)
        elif policies and (view.uid in state.jobs or view.uid in state.claims):
            from partita.console.ask_policies import ask_policies, put_back

            as_waiting = state if about.waits else state_of(put_back(lists, view.uid))
            answers = await ask_policies(as_waiting, view.uid, now, usage)
        elif policies and job is not None:
            notes.append("The policies were not asked: the job was deleted meanwhile.")
        found.append((about, answers))
    return found, views[_EXPLAINED:], notes


def _named_frameworks(
    view: WorkloadView, job: SharedGPUJob | None, lists: Lists
) -> tuple[str, ...]:
    """Return the frameworks that a job's template or a workload's Pod names."""
    if job is not None:
        return named_frameworks(job.spec.template.unpack().spec, job.spec.framework)
    for pod in lists[PODS]:
        meta = pod["metadata"]
        if (meta["namespace"], meta["name"]) == (view.namespace, view.pod):
            notes = meta.get("annotations") or {}
            return named_frameworks(pod["spec"], notes.get(ANNOTATION_FRAMEWORK, ""))
    return ()


def _sees(namespace: str, missing: Collection[str]) -> Callable[[str], bool]:
    """Return whether the user may see the names of jobs and Pods in a namespace."""
    if any(kind.startswith((JOBS.plural, PODS.plural)) for kind in missing):
        return namespace.__eq__
    return lambda _: True


def _missing(target: ExplainTarget, namespace: str, lists: Lists, state: State) -> str:
    """Return why no workload was found, and what to write instead."""
    kind, name = target.kind, target.name.name
    pods = [pod["metadata"] for pod in lists[PODS]]
    if kind == "Pod" and any((p["namespace"], p["name"]) == (namespace, name) for p in pods):
        return (
            f"Pod {name} in namespace {namespace} has no claim of a GPU slice that is in use: its "
            "spec.resourceClaims names no device class of Partita, or its claim is not made yet "
            f"(`kubectl describe pod {name} -n {namespace}`), or it has ended"
        )
    elsewhere = sorted(
        {p["namespace"] for p in pods if any(find_workloads(p["namespace"], kind, name, state))}
    )
    if elsewhere:
        advice = f"it is in {', '.join(elsewhere)}: write -n {elsewhere[0]}"
    elif any(
        (j["metadata"]["namespace"], j["metadata"]["name"]) == (namespace, name)
        for j in lists[JOBS]
    ):
        advice = f"a SharedGPUJob has this name: write `partita explain {namespace}/{name}`"
    else:
        advice = "see `partita workloads -A`"
    what = f"{kind} {name}"
    if kind not in {"Pod", "ResourceClaim"}:
        what = f"Pod of {what} with a claim of a GPU slice"
    return f"there is no {what} in namespace {namespace}; {advice}"


def _data(found: Explanation, answers: list[PolicyAnswer]) -> ExplainedRequest:
    kept = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "job"}
    status = found.job.status if found.job is not None else None
    view = found.workload
    return ExplainedRequest(view.namespace, view.name, status=status, policies=answers, **kept)
