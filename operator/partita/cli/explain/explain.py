"""Explains a SharedGPUJob, a Pod, a claim, or the Pods of a controller."""

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from partita.accounting.daily_usage import DailyUsage
from partita.accounting.usage_recorder import usage_for_order
from partita.claims.workload_view import WorkloadView
from partita.claims.workloads import find_workloads
from partita.cli import terminal
from partita.cli.cluster_state import list_visible, read_visible, state_of
from partita.cli.connection import open_cluster, readable
from partita.cli.explain.planned import Planned
from partita.cli.explain.target import ExplainTarget
from partita.cli.jobs.find_job import check_namespace, find_job, key_of
from partita.cli.options import Cluster
from partita.cli.terminal import UserError
from partita.console.explanation import ExplainedRequest, Explanation, explain, visible_names
from partita.constants import ANNOTATION_FRAMEWORK
from partita.kube.client import CLAIMS, JOBS, PODS, PROFILES, Kube
from partita.kube.connect import current_namespace
from partita.kube.errors import ForbiddenError
from partita.kube.operator_lease import check_operator
from partita.models import SharedGPUJob
from partita.pods.framework_memory import named_frameworks
from partita.store.listing import Lists
from partita.store.state import State

__all__ = ["ExplainOutput", "print_explanation"]

Json = dict[str, Any]

_EXPLAINED = 3
"""Maximum number of Pods of one controller that are explained; the others are listed."""

ExplainOutput = list[ExplainedRequest] | list[Planned]
"""With --filename it is a list of what is planned."""


async def print_explanation(
    target: ExplainTarget, cluster: Cluster, output: str, *, policies: bool
) -> None:
    """Print why jobs or workloads wait or where they run.

    Parameters
    ----------
    policies
        Whether to print what each policy would do with them now.
    """
    others: list[WorkloadView] = []
    notes: list[str] = []
    async with open_cluster(*cluster) as kube:
        namespace = target.name.namespace or current_namespace(*cluster)
        job = await find_job(kube, target.name, cluster) if target.is_job else None
        phase = readable(SharedGPUJob, job).status.phase if job is not None else None
        if job is not None and phase is not None and phase.finished:
            profiles, _ = await list_visible(kube, PROFILES, namespace)
            state = state_of({PROFILES: profiles, JOBS: [job]})
            named = find_workloads(namespace, target.kind, target.name.name, state)
            found = [explain(view, state, datetime.now(UTC)) for view in named]
        else:
            found, others, notes = await _look(kube, target, namespace, job, policies=policies)
    if output == "table":
        from partita.cli.explain.text import explanation_text

        terminal.display(explanation_text(found, others))
    else:
        data = [_data(one) for one in found]
        data += [ExplainedRequest(view.namespace, view.name, view) for view in others]
        terminal.dump(data, output)
    for note in notes:
        terminal.warn(note)


async def _look(
    kube: Kube,
    target: ExplainTarget,
    namespace: str,
    job: Json | None,
    *,
    policies: bool,
) -> tuple[list[Explanation], list[WorkloadView], list[str]]:
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
    there = state.jobs.keys() | state.claims.keys()
    if job is not None:
        state.apply_job(job)  # it may have been deleted meanwhile, or may not be listed
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
    found: list[Explanation] = []
    for view in views[:_EXPLAINED]:
        about = explain(view, state, now)
        about = replace(about, named_frameworks=_named_frameworks(view, about.job, lists))
        if about.beside is not None:
            about = replace(about, beside=visible_names(about.beside, sees))
        if missing:
            about = replace(about, namespace_share=None)
        elif policies and view.uid in there:
            from partita.console.ask_policies import ask_policies, put_back

            as_waiting = state if about.waits else state_of(put_back(lists, view.uid))
            answers = await ask_policies(as_waiting, view.uid, view.partition, now, usage)
            about = replace(about, policies=answers)
        elif policies and job is not None:
            notes.append("The policies were not asked: the job was deleted meanwhile.")
        found.append(about)
    return found, views[_EXPLAINED:], notes


def _named_frameworks(
    view: WorkloadView, job: SharedGPUJob | None, lists: Lists
) -> tuple[str, ...]:
    """Return the frameworks that a job's template or a workload's Pod names."""
    if job is not None:
        return named_frameworks(job.spec.template.unpack().spec, job.spec.framework)
    for pod in lists[PODS]:
        if key_of(pod) == f"{view.namespace}/{view.pod}":
            notes = pod["metadata"].get("annotations") or {}
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
    if kind == "Pod" and any(key_of(pod) == f"{namespace}/{name}" for pod in lists[PODS]):
        return (
            f"Pod {name} in namespace {namespace} has no claim of a GPU slice that is in use: its "
            "spec.resourceClaims names no device class of Partita, or its claim is not made yet "
            f"(`kubectl describe pod {name} -n {namespace}`), or it has ended"
        )
    namespaces = {pod["metadata"]["namespace"] for pod in lists[PODS]}
    elsewhere = sorted(n for n in namespaces if any(find_workloads(n, kind, name, state)))
    if elsewhere:
        advice = f"it is in {', '.join(elsewhere)}: write -n {elsewhere[0]}"
    elif any(key_of(job) == f"{namespace}/{name}" for job in lists[JOBS]):
        advice = f"a SharedGPUJob has this name: write `partita explain {namespace}/{name}`"
    else:
        advice = "see `partita workloads -A`"
    what = f"{kind} {name}"
    if kind not in {"Pod", "ResourceClaim"}:
        what = f"Pod of {what} with a claim of a GPU slice"
    return f"there is no {what} in namespace {namespace}; {advice}"


def _data(found: Explanation) -> ExplainedRequest:
    return ExplainedRequest(**{f.name: getattr(found, f.name) for f in fields(ExplainedRequest)})
