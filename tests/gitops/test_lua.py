"""What Argo CD shows of our kinds and lets people do: every state, also ones not yet written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lupa.lua51 import LuaError

from gitops.lua import Body, act, actions, health, scripts
from partita.constants import ANNOTATION_RETRY
from partita.models import GPUServer, Phase
from partita.models.quantities import parse_time

KINDS = ("SharedGPUJob", "GPUPartition", "GPUServer", "ApplicationProfile")


def an(kind: str, status: Body | None = None, *, generation: int = 3, **spec: Any) -> Body:
    body: Body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "it", "generation": generation},
        "spec": spec,
    }
    return body if status is None else body | {"status": status}


def a_job(phase: str, *, conditions: list[Body] | None = None, **status: Any) -> Body:
    status = {"observedGeneration": 3, "phase": phase, "conditions": conditions or [], **status}
    return an("SharedGPUJob", status)


def a_partition(*conditions: Body, observed: int = 3) -> Body:
    return an(
        "GPUPartition", {"observedGeneration": observed, "conditions": list(conditions)}, gpus=1
    )


def a_server(*conditions: Body, **spec: Any) -> Body:
    return an("GPUServer", {"conditions": list(conditions)}, partition="shared", **spec)


def is_(kind: str, status: str, reason: str = "", message: str = "") -> Body:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_each_kind_has_a_health_and_only_ours_have():
    keys = {f"resource.customizations.health.partita.dev_{kind}" for kind in KINDS}
    keys |= {
        f"resource.customizations.actions.partita.dev_{kind}"
        for kind in ("SharedGPUJob", "GPUServer")
    }
    assert set(scripts()) == keys


@pytest.mark.parametrize("kind", ["SharedGPUJob", "GPUPartition", "GPUServer"])
@pytest.mark.parametrize("status", [None, {}, {"conditions": []}, {"observedGeneration": 3}])
def test_what_nobody_has_looked_at_is_progressing(kind: str, status: Body | None):
    state, said = health(an(kind, status))
    assert state == "Progressing"
    assert said


def test_a_profile_is_healthy_it_only_tells_of_the_past():
    assert health(an("ApplicationProfile")) == ("Healthy", "")


STATES = {"Succeeded": "Healthy", "Failed": "Degraded", "Suspended": "Suspended"}
"""Of the phases in which a job is not Progressing."""


@pytest.mark.parametrize("phase", [*map(str, Phase), "SomethingNew"])
def test_a_jobs_phase_is_its_health(phase: str):
    state = STATES.get(phase, "Progressing")
    assert health(a_job(phase)) == (state, phase)
    assert health(a_job(phase, reason="", message="")) == (state, phase)
    assert health(a_job(phase, reason="Why", message="")) == (state, "Why")
    assert health(a_job(phase, message="words")) == (state, "words")
    assert health(a_job(phase, reason="Why", message="words")) == (state, "Why: words")


def test_where_a_job_runs_is_told():
    assert health(a_job("Running", assignment={"node": "gpu-3"}))[1] == "Running on gpu-3"
    assert health(a_job("Running", assignment={"node": ""}))[1] == "Running"


def test_a_job_that_only_yaml_helps_is_degraded_with_what_to_change():
    stalled = is_("Stalled", "True", "PartitionNotFound", "write another partition")
    assert health(a_job("Queued", conditions=[is_("Scheduled", "False"), stalled])) == (
        "Degraded",
        "write another partition",
    )
    helped = a_job("Queued", conditions=[is_("Stalled", "False", "NotStalled")])
    assert health(helped)[0] == "Progressing"


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Suspended"])
def test_a_job_whose_yaml_has_changed_since_is_progressing(phase: str):
    stalled = is_("Stalled", "True", "NeverFits", "ask for less")
    old = a_job(phase, conditions=[stalled], observedGeneration=2)
    assert health(old)[0] == "Progressing"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([is_("Ready", "True", "AllGPUsReady", "2 of 2")], ("Healthy", "2 of 2")),
        ([is_("Ready", "False", "Starting", "1 of 2")], ("Progressing", "1 of 2")),
        ([is_("Ready", "False", "Draining", "1 of 2")], ("Progressing", "1 of 2")),
        ([is_("Ready", "False", "Drained", "it is Drained")], ("Suspended", "it is Drained")),
        (
            [
                is_("Ready", "False", "GPUsUnready", "a"),
                is_("Degraded", "True", "GPUsUnready", "b"),
            ],
            ("Degraded", "b"),
        ),
        (
            [is_("Ready", "True"), is_("PolicyHealthy", "False", "PolicyUnavailable", "no such")],
            ("Degraded", "no such"),
        ),
    ],
)
def test_a_partitions_conditions_are_its_health(conditions: list[Body], expected: tuple[str, str]):
    assert health(a_partition(*conditions)) == expected
    assert health(a_partition(*reversed(conditions))) == expected
    assert health(a_partition(*conditions, observed=2))[0] == "Progressing"


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (a_server(is_("Ready", "True", message="ok")), ("Healthy", "ok")),
        (a_server(is_("Ready", "False", message="MPS starts")), ("Degraded", "MPS starts")),
        (a_server(is_("Faulted", "True", message="Xid 31")), ("Degraded", "Xid 31")),
        (
            a_server(
                is_("Ready", "True"), is_("Faulted", "True", message="Xid 31"), drainSince="t"
            ),
            ("Degraded", "Xid 31"),
        ),
        (
            a_server(is_("Ready", "True"), drainSince="2026-11-21T08:00:00Z"),
            ("Suspended", "Takes no jobs since 2026-11-21T08:00:00Z"),
        ),
        (a_server(is_("Faulted", "False")), ("Progressing", "The agent has not reported yet")),
    ],
)
def test_a_gpus_conditions_are_its_health(server: Body, expected: tuple[str, str]):
    assert health(server) == expected


@pytest.mark.parametrize(
    ("phase", "suspend", "offered"),
    [
        (None, None, {"suspend"}),
        ("Queued", False, {"suspend"}),
        ("Running", True, {"resume"}),
        ("Suspended", True, {"resume"}),
        ("Failed", False, {"retry"}),
        ("Succeeded", None, set()),
        ("SomethingNew", False, {"suspend"}),
    ],
)
def test_a_job_offers_what_would_have_an_effect(
    phase: str | None, *, suspend: bool | None, offered: set[str]
):
    job = an("SharedGPUJob") if phase is None else a_job(phase)
    if suspend is not None:
        job["spec"]["suspend"] = suspend
    assert actions(job) == offered


def near_now(text: str) -> bool:
    return abs(datetime.now(UTC) - parse_time(text)) < timedelta(minutes=1)


@pytest.mark.parametrize("annotations", [None, {}, {ANNOTATION_RETRY: "before", "kept": "yes"}])
def test_retry_asks_anew_and_leaves_the_rest(annotations: dict[str, str] | None):
    job = a_job("Failed", reason="Error")
    if annotations is not None:
        job["metadata"]["annotations"] = annotations
    changed = act(job, "retry")
    found = changed["metadata"]["annotations"]
    assert near_now(found[ANNOTATION_RETRY])
    assert found | {ANNOTATION_RETRY: ""} == (annotations or {}) | {ANNOTATION_RETRY: ""}
    assert changed["spec"] == job["spec"]


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Suspended"])
def test_only_what_has_failed_is_retried(phase: str):
    # Argo CD greys out what is disabled, but does it where its API is asked to.
    with pytest.raises(LuaError, match=r"^only a job that failed is retried$"):
        act(a_job(phase), "retry")
    with pytest.raises(LuaError):
        act(an("SharedGPUJob"), "retry")


def test_suspend_and_resume_are_each_others_undoing():
    job = a_job("Running")
    suspended = act(job, "suspend")
    assert suspended["spec"] == {"suspend": True}
    assert act(suspended, "resume")["spec"] == {"suspend": False}


def test_drain_and_resume_of_a_gpu():
    server = a_server(is_("Ready", "True"))
    assert actions(server) == {"drain"}
    drained = act(server, "drain")
    assert near_now(drained["spec"]["drainSince"])
    assert GPUServer.parse(drained).spec.drain_since is not None
    assert actions(drained) == {"resume"}
    assert act(drained, "drain") == drained  # since then, not since now
    assert act(drained, "resume")["spec"] == server["spec"]
