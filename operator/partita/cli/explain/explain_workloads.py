"""Explains workloads: a Pod, a claim, or the Pods of a controller."""

from datetime import UTC, datetime
from typing import Any

from partita.cli import terminal
from partita.cli.as_data import as_data
from partita.cli.cluster_state import read_visible, state_of
from partita.cli.connection import open_cluster
from partita.cli.explain.explain_job import NOT_ASKED
from partita.cli.explain.target import ExplainTarget
from partita.cli.jobs.find_job import check_namespace
from partita.cli.options import Cluster
from partita.cli.terminal import UserError
from partita.console.ask_policies import PolicyAnswer, ask_policies, put_back
from partita.console.workload_explanation import WorkloadExplanation, explain_workload
from partita.informer.listing import Lists
from partita.informer.state import State
from partita.kube.client import CLAIMS, JOBS, PODS
from partita.kube.connect import current_namespace
from partita.kube.errors import NotFoundError
from partita.kube.operator_lease import check_operator
from partita.reconcile.claims.workloads import find_workloads
from partita.reconcile.workload_view import WorkloadView

__all__ = ["explain_workloads"]

_PODS_EXPLAINED = 3
"""Maximum number of Pods of one controller that are explained; the others are listed."""

_Found = list[tuple[WorkloadExplanation, list[PolicyAnswer]]]


async def explain_workloads(target: ExplainTarget, cluster: Cluster, output: str) -> None:
    """Print why workloads wait or where they run, and what each policy would do with them."""
    async with open_cluster(*cluster) as kube:
        namespace = target.name.namespace or current_namespace(*cluster)
        try:
            lists, missing = await read_visible(kube, namespace, {CLAIMS, PODS})
        except NotFoundError as error:
            if CLAIMS.plural not in error.what:
                raise
            raise UserError(
                "this cluster does not serve resource.k8s.io/v1, so no Pod has a slice by a "
                "claim: that needs Kubernetes 1.34"
            ) from None
        notes = [problem] if (problem := await check_operator(kube)) else []
        if missing:
            notes.append(f"{NOT_ASKED} {', '.join(missing)}.")
        state, now = state_of(lists), datetime.now(UTC)
        views = list(find_workloads(namespace, target.kind, target.name.name, state))
        if not views:
            await check_namespace(kube, namespace)
            raise UserError(_missing(target, namespace, lists, state))
        views.sort(key=lambda view: (not view.waits, view.name))
        found: _Found = []
        for view in views[:_PODS_EXPLAINED]:
            answers: list[PolicyAnswer] = []
            if not missing and view.uid in state.claims:
                as_waiting = (
                    state if view.phase == "Queued" else state_of(put_back(lists, view.uid))
                )
                answers = await ask_policies(as_waiting, view.uid, now)
            found.append((explain_workload(view, state, now), answers))
    if output == "table":
        from partita.cli.explain.workload_text import workloads_text

        terminal.display(workloads_text(found, views[_PODS_EXPLAINED:]))
    else:
        data = [_data(*each) for each in found] + [_data_of(v) for v in views[_PODS_EXPLAINED:]]
        terminal.dump(data if len(views) > 1 else data[0], output)
    for note in notes:
        terminal.warn(note)


def _missing(target: ExplainTarget, namespace: str, lists: Lists, state: State) -> str:
    """Return why nothing was found, and what to write instead."""
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


def _data(found: WorkloadExplanation, answers: list[PolicyAnswer]) -> dict[str, Any]:
    return {**_data_of(found.workload), **as_data(found), "policies": as_data(answers)}


def _data_of(view: WorkloadView) -> dict[str, Any]:
    return {"namespace": view.namespace, "name": view.name, "workload": as_data(view)}
