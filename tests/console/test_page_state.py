"""What a page is sent: names of one's own namespaces alone, and only what has changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.objects import attempt, job, lists, node, partition, running, server
from cli.workloads import allocate, workload
from partita.claims.workloads import job_workload
from partita.cli.cluster_state import state_of
from partita.console.details import detail_of
from partita.console.explanation import explain
from partita.console.lists import ended_page
from partita.console.page_state import PageState, changes, page_state_of, visible_state

SECRET = "skunkworks"
NOW = datetime(2026, 1, 1, 13, tzinfo=UTC)
WAITS = {
    "phase": "Queued", "reason": "InsufficientMemory", "message": f"told of {SECRET}",
    "queuePosition": 1,
}  # fmt: skip


def page(*objects: dict[str, Any]) -> PageState:
    return page_state_of(state_of(lists(node(), *objects)))


def small() -> PageState:
    """Jobs and workloads of one's own namespace and of another one."""
    ours = job("train", "10Gi", namespace="team", status=running("gpu-0"))
    theirs = job("hidden-train", "12Gi", namespace=SECRET, status=running("gpu-0"))
    waiting = job("hidden-next", "30Gi", namespace=SECRET, status=WAITS)
    second = WAITS | {"message": "needs 30.0 GiB", "queuePosition": 2}
    next_one = job("next", "30Gi", namespace="team", status=second)
    pod = workload("serve-1", on="gpu-0")
    hidden = workload("hidden-serve", namespace=SECRET, on="gpu-0")
    starts = {"earliest": "2026-01-01T14:05:00Z", "latest": "2026-01-01T14:09:00Z"}
    says = "InsufficientMemory: needs 30.0 GiB"
    waits = workload("serve-2", "30Gi", says=says, position=3, starts=starts)
    stuck = workload("hidden-late", namespace=SECRET, says=f"NeverFits: told of {SECRET}")
    used = {"train": "4Gi", "hidden-train": "5Gi"}
    gpu = server("gpu-0", ours, theirs, used=used)
    gpu = allocate(gpu, pod[1], pod[0], idleSince="2026-01-01T12:00:00Z")
    gpu = allocate(gpu, hidden[1], hidden[0], application=f"Deployment/{SECRET}")
    return page(
        partition(gpus=1, trouble=f"hidden-train of {SECRET} fails"), gpu, ours, theirs, waiting,
        next_one, *pod, *hidden, *waits, *stuck,
    )  # fmt: skip


def mine(whole: PageState) -> PageState:
    return visible_state(whole, {"team"}.__contains__)


def of_kind(seen: PageState, kind: str) -> list[dict[str, Any]]:
    return [entity for entity in seen.values() if entity["kind"] == kind]


def rows_of(seen: PageState, name: str) -> list[dict[str, Any]]:
    """The rows of one list, in the order of the queue."""
    rows = [row for row in of_kind(seen, "job") if row["list"] == name]
    return sorted(rows, key=lambda row: row["position"] or 9)


def test_names_of_other_namespaces_are_nowhere_in_what_is_sent() -> None:
    text = json.dumps(mine(small()))
    rows = {(row.get("name"), row.get("message")) for row in rows_of(mine(small()), "running")}
    assert rows == {("train", "on gpu-0"), ("serve-1", "on gpu-0"), (None, None)}
    assert SECRET not in text
    assert "hidden" not in text
    text = json.dumps(visible_state(small(), lambda _: False))
    assert not [name for name in ("team", "train", "serve", SECRET) if name in text]


def test_slices_of_others_keep_their_size_and_nothing_more() -> None:
    (gpu,) = of_kind(mine(small()), "gpu")
    own = {piece["name"]: piece["used"] for piece in gpu["slices"] if piece["namespace"] == "team"}
    others = [piece for piece in gpu["slices"] if piece["namespace"] is None]
    assert own == {"train": 4 << 30, "serve-1": 2 << 30}
    assert sorted(piece["memory"] for piece in others) == [8 << 30, 12 << 30]
    assert {*others[0], *others[1]} == {"id", "namespace", "memory"}


def test_jobs_of_others_keep_their_place_in_the_queue() -> None:
    first, second, *_ = rows_of(mine(small()), "waiting")
    assert (first["namespace"], first["asks"], first["position"]) == (None, "30.0 GiB", 1)
    assert "reason" not in first
    assert (second["name"], second["message"]) == ("next", "needs 30.0 GiB")


def test_workloads_are_in_the_lists_with_their_application() -> None:
    rows = {row["name"]: row for row in of_kind(small(), "job")}
    running, waiting = rows["serve-1"], rows["serve-2"]
    assert (running["list"], running["phase"]) == ("running", "Running")
    assert (running["workload"], running["lasting"]) == ("Deployment/serve", True)
    assert running["idleSince"] == datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    seen = [waiting[key] for key in ("list", "position", "reason", "message")]
    assert seen == ["waiting", 3, "InsufficientMemory", "needs 30.0 GiB"]
    assert (waiting["stuck"], rows["hidden-late"]["stuck"]) == (False, True)
    assert waiting["starts"]["latest"] - waiting["starts"]["earliest"] == 240


def test_a_job_and_a_pod_of_one_name_are_two_rows() -> None:
    both = page(partition(), job("one", status=WAITS), *workload("one"))
    assert [row["name"] for row in of_kind(both, "job")] == ["one", "one"]


def test_the_name_of_a_slice_in_another_namespace_is_not_sent() -> None:
    other = job("x", None, namespace=SECRET, slice=f"{SECRET} GiB", status=WAITS)
    (row,) = of_kind(mine(page(partition(), other)), "job")
    assert row["asks"] == ""


def test_a_partition_named_only_by_jobs_of_others_is_not_sent() -> None:
    other = job("x", namespace=SECRET, partition=f"{SECRET}-gpus", status=WAITS)
    whole = page(partition(), other)
    assert f"partition/{SECRET}-gpus" in whole
    assert SECRET not in json.dumps(mine(whole))


def test_a_missing_partition_named_by_an_own_job_is_sent() -> None:
    seen = mine(page(job("x", partition="typo", status=WAITS | {"message": ""})))
    assert seen["partition/typo"]["exists"] is False


def test_what_policies_say_is_for_those_who_may_see_all() -> None:
    body = partition(policy={"name": "fifo", "shadow": ["sjf"]})
    body["status"] |= {
        "conditions": [{"type": "PolicyHealthy", "status": "False", "message": SECRET}],
        "shadow": [{"name": "sjf", "cycles": 3, "agreed": 2, "message": SECRET}],
    }
    whole = page(body)["partition/shared"]
    assert whole["policy"]["message"] == SECRET
    own = mine({"partition/shared": whole})["partition/shared"]
    assert SECRET not in json.dumps(own)
    assert own["policy"]["healthy"] is False
    assert own["shadow"][0]["agreed"] == 2


def ended(name: str, namespace: str, phase: str = "Succeeded", minute: int = 0) -> dict[str, Any]:
    status = {"phase": phase, "reason": phase, "message": f"{name} {phase}"}
    status["completionTime"] = f"2026-01-01T12:{minute:02}:00Z"
    return job(name, "4Gi", namespace=namespace, status=status)


def test_ended_jobs_are_counted_by_namespace_and_those_of_others_are_left_out() -> None:
    ours = ended("a", "team"), ended("b", "team", "Failed")
    whole = page(partition(), *ours, ended("c", SECRET), ended("d", SECRET, "Failed"))
    seen = whole["partition/shared"]
    assert seen["finished"] == {SECRET: 1, "team": 1}
    assert seen["failed"] == {SECRET: 1, "team": 1}
    own = mine(whole)
    assert own["partition/shared"]["finished"] == {"team": 1}
    assert own["partition/shared"]["failed"] == {"team": 1}
    assert SECRET not in json.dumps(own)
    assert len(of_kind(whole, "job")) == 0  # their rows are asked for, page by page


def test_ended_jobs_come_in_pages_the_latest_first() -> None:
    jobs = [ended(f"job-{n:02}", "team", minute=n) for n in range(60)]
    state = state_of(lists(partition(), *jobs, ended("theirs", SECRET, minute=59)))

    def rows(offset: int, text: str = "", order: str = "") -> tuple[int, list[str]]:
        sees = {"team"}.__contains__
        asked: Any = {"text": text, "order": order, "offset": offset}
        found = ended_page(state, "shared", "finished", sees=sees, **asked)
        return found["total"], [row["name"] for row in found["rows"]]

    first, second = rows(0), rows(50)
    assert first == (60, [f"job-{n}" for n in range(59, 9, -1)])
    assert second == (60, [f"job-0{n}" for n in range(9, -1, -1)])
    assert rows(50, order="-since") == (60, [f"job-{n}" for n in range(50, 60)])
    assert rows(50, order="-name") == second
    assert rows(0, "job-07") == (1, ["job-07"])
    assert rows(0, SECRET) == (0, [])


@pytest.mark.parametrize(("earlier", "peak"), [("6Gi", 6 << 30), (None, 4 << 30)])
def test_a_job_in_full_has_its_latest_attempts_and_what_it_used(
    earlier: str | None, peak: int
) -> None:
    attempts = [attempt(n, "gpu-0", outcome="Failed") for n in range(1, 201)]
    status = running("gpu-0") | {"peakMemory": earlier, "attempts": attempts}
    body = job("train", "10Gi", namespace="team", status=status)
    state = state_of(lists(partition(), body, server("gpu-0", body, used={"train": "4Gi"})))
    (found,) = state.jobs.values()
    seen = detail_of(explain(job_workload(found, state), state, NOW), state, lambda _: True)
    assert (seen["requested"]["memory"], seen["used"], seen["peak"]) == (10 << 30, 4 << 30, peak)
    assert [one["number"] for one in seen["attempts"]] == list(range(200, 150, -1))
    assert (seen["attempts"][0]["servers"], seen["attemptCount"]) == (["gpu-0"], 200)


def test_namespaces_are_shown_with_their_share_and_quota_and_only_ones_own() -> None:
    ours = job("train", "10Gi", namespace="team", status=running("gpu-0"))
    theirs = job("hidden", "20Gi", namespace=SECRET, status=running("gpu-0"))
    own_quota = {"namespace": "team", "memory": "16Gi", "jobs": 4}
    quotas = [own_quota, {"namespace": SECRET, "memory": "32Gi"}]
    whole = page(partition(quotas=quotas), ours, theirs, server("gpu-0", ours, theirs))
    names = ("namespace", "share", "resource", "memory", "jobs", "usedMemory", "usedJobs")
    own, other = (
        dict(zip(names, values, strict=True))
        for values in (
            ("team", 0.269, "memory", 16 << 30, 4, 10 << 30, 1),
            (SECRET, 0.538, "memory", 32 << 30, None, 20 << 30, 1),
        )
    )
    assert whole["partition/shared"]["namespaces"] == [other, own]
    assert mine(whole)["partition/shared"]["namespaces"] == [own]


def state_seen(*, ready: bool, told: str | None) -> str:
    body = partition(gpus=1)
    if told:
        body["status"]["gpuSummary"] = [{"name": "gpu-0", "state": told}]
    state = state_of(lists(body, server("gpu-0", ready=ready)))
    state.nodes.clear()  # the console may not read them
    return str(page_state_of(state)["gpu/gpu-0"]["state"])


def test_whether_a_gpus_node_is_up_is_taken_from_the_operator() -> None:
    assert state_seen(ready=True, told="Ready") == "Ready"
    assert state_seen(ready=True, told="Unready") == "Unready"
    assert state_seen(ready=False, told="Ready") == "Unready"
    assert state_seen(ready=True, told=None) == "Ready"


# What has changed.


def patched(old: PageState, patch: dict[str, Any]) -> PageState:
    """What the page makes of a patch."""
    new = {key: dict(entity) for key, entity in old.items() if key not in patch.get("gone", ())}
    for key, fields in patch.get("set", {}).items():
        new[key] = {k: v for k, v in (new.get(key, {}) | fields).items() if v is not None}
    return new


entities = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1)
states = st.dictionaries(st.sampled_from("xyz"), entities)


@given(states, states)
def test_a_patch_makes_the_new_state_and_has_only_what_differs(
    old: PageState, new: PageState
) -> None:
    assert patched(old, changes(old, new)) == new
    assert changes(old, dict(old)) == {}
    for key, fields in changes(old, new).get("set", {}).items():
        for name, value in fields.items():
            assert old.get(key, {}).get(name, "missing") != value
