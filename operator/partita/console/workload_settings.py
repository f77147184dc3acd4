"""What a workload asks for, and where each setting comes from. Pure functions."""

from dataclasses import dataclass

from partita.claims.workloads import pod_of
from partita.constants import (
    ANNOTATION_APPLICATION,
    ANNOTATION_EXPECTED_DURATION,
    ANNOTATION_FRAMEWORK,
    ANNOTATION_MEMORY,
    ANNOTATION_MEMORY_LIMIT,
    ANNOTATION_PROCESSES,
    ANNOTATION_THREADS,
    LIMIT_MEMORY,
)
from partita.models.device_class import class_target
from partita.models.template_name import TemplateName
from partita.scheduling.claim_request import application_of, is_lasting
from partita.scheduling.memory_request import HISTORY_MARGIN_PERCENT, with_margin
from partita.scheduling.reasons import gib
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.workload_pod import WorkloadPod

__all__ = ["Setting", "settings_of"]

_OTHERS = {
    ANNOTATION_MEMORY_LIMIT: "Memory ceiling",
    ANNOTATION_PROCESSES: "Processes",
    ANNOTATION_FRAMEWORK: "Framework",
    ANNOTATION_EXPECTED_DURATION: "Expected duration",
}
"""Settings that only annotations have."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that a workload asks for."""

    name: str
    value: str
    source: str
    """Where it is written, or how it was found."""


def settings_of(uid: str, state: State) -> list[Setting]:
    """Return what a claim and its Pod ask for; empty if the claim is deleted."""
    claim = state.claims.get(uid)
    if claim is None:
        return []
    pod = pod_of(uid, state)
    workload = pod.workload if pod is not None else WorkloadPod()
    notes, template = workload.annotations, _template(claim, workload)
    found = [_memory(claim, workload, template, state)]
    threads = claim.threads if claim.threads is not None else notes.get(ANNOTATION_THREADS)
    if threads is not None:
        source = template if claim.threads is not None else _annotation(ANNOTATION_THREADS)
        found.append(Setting("GPU threads", f"{threads} %", source))
    for name, title in _OTHERS.items():
        if name in notes:
            found.append(Setting(title, notes[name], _annotation(name)))
    if workload.application:
        found.append(_application(workload))
        if workload.priority:
            found.append(Setting("Priority", str(workload.priority), "priority of its Pod"))
        found.append(_end(workload))
    return found


def _annotation(name: str) -> str:
    return f"annotation {name} of its Pod"


def _template(claim: ClaimView, pod: WorkloadPod) -> str:
    """Return where the request of a claim is written."""
    names = (one.template for one in pod.claims if one.claim == claim.name)
    template = next(iter(names), "")
    if not template:
        return f"ResourceClaim {claim.name}"
    if TemplateName.parse(template) is not None:
        return f"limit {LIMIT_MEMORY} of its container"
    return f"ResourceClaimTemplate {template}"


def _memory(claim: ClaimView, pod: WorkloadPod, template: str, state: State) -> Setting:
    title = "GPU memory"
    target = class_target(claim.device_class, state.partitions)
    if target is not None and target.slice:
        partition = state.partitions.get(target.partition)
        chosen = partition.spec.slice(target.slice) if partition is not None else None
        value = f"{gib(chosen.memory)} (slice {chosen.name})" if chosen else f"slice {target.slice}"
        return Setting(title, value, f"device class {claim.device_class}, {template}")
    if claim.memory is not None:
        return Setting(title, gib(claim.memory), template)
    if ANNOTATION_MEMORY in pod.annotations:
        return Setting(title, pod.annotations[ANNOTATION_MEMORY], _annotation(ANNOTATION_MEMORY))
    application = application_of(pod)
    profile = state.profiles.profile(claim.namespace, application)
    if profile is not None and profile.peak_memory:
        runs = f"{profile.runs} run{'s' if profile.runs != 1 else ''}"
        learnt = f"learnt from {runs} of application {application}: {gib(profile.peak_memory)}"
        more = f"{learnt} and {HISTORY_MARGIN_PERCENT} %"
        return Setting(title, gib(with_margin(profile.peak_memory)), more)
    unknown = f"nothing is written, and application {application} is not known yet"
    return Setting(title, "a GPU alone", unknown)


def _application(pod: WorkloadPod) -> Setting:
    named = ANNOTATION_APPLICATION in pod.annotations
    source = _annotation(ANNOTATION_APPLICATION) if named else "kind and name of its controller"
    return Setting("Application", application_of(pod), source)


def _end(pod: WorkloadPod) -> Setting:
    if is_lasting(pod):
        source = f"restartPolicy Always, without annotation {ANNOTATION_EXPECTED_DURATION}"
        return Setting("Ends", "never by itself: it is a service", source)
    always = pod.restarts_always
    source = _annotation(ANNOTATION_EXPECTED_DURATION) if always else "restartPolicy of its Pod"
    return Setting("Ends", "by itself", source)
