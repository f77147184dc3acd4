"""What a page is sent: names of one's own namespaces alone, and only what has changed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cli.objects import job, lists, node, partition, running, server
from partita.cli.connection import state_of
from partita.console.page_state import Scene, changes, namespaces_of, scene_for, scene_of

SECRET = "skunkworks"
WAITS = {
    "phase": "Queued",
    "reason": "InsufficientMemory",
    "message": f"told of {SECRET}",
    "queuePosition": 1,
}


def scene(*objects: dict[str, Any]) -> Scene:
    return scene_of(state_of(lists(node(), *objects)))


def small() -> Scene:
    ours = job("train", "10Gi", namespace="team", status=running("gpu-0"))
    theirs = job("hidden-train", "20Gi", namespace=SECRET, status=running("gpu-0"))
    waiting = job("hidden-next", "30Gi", namespace=SECRET, status=WAITS)
    next_one = job(
        "next",
        "30Gi",
        namespace="team",
        status=WAITS | {"message": "needs 30.0 GiB", "queuePosition": 2},
    )
    used = {"uid-train": "4Gi", "uid-hidden-train": "5Gi"}
    return scene(
        partition(gpus=1, trouble=f"hidden-train of {SECRET} fails"), ours, theirs, waiting, next_one,
        server("gpu-0", ours, theirs, used=used),
    )  # fmt: skip


def mine(whole: Scene) -> Scene:
    return scene_for(whole, {"team"}.__contains__)


def of_kind(seen: Scene, kind: str) -> list[dict[str, Any]]:
    return [entity for entity in seen.values() if entity["kind"] == kind]


def test_names_of_other_namespaces_are_nowhere_in_what_is_sent() -> None:
    text = json.dumps(mine(small()))
    assert "train" in text
    assert SECRET not in text
    assert "hidden" not in text


def test_one_who_may_see_nothing_is_sent_no_name_at_all() -> None:
    text = json.dumps(scene_for(small(), lambda _: False))
    assert "team" not in text
    assert "train" not in text
    assert SECRET not in text


def test_slices_of_others_keep_their_size_and_nothing_more() -> None:
    (gpu,) = of_kind(mine(small()), "gpu")
    own, other = gpu["slices"]
    assert own["name"] == "train"
    assert own["used"] == 4 << 30
    assert set(other) == {"id", "namespace", "memory"}
    assert (other["namespace"], other["memory"]) == (None, 20 << 30)


def test_jobs_of_others_keep_their_place_in_the_queue() -> None:
    queue = sorted(of_kind(mine(small()), "job"), key=lambda row: row["position"])
    assert [row["namespace"] for row in queue] == [None, "team"]
    assert queue[0]["asks"] == "30.0 GiB"
    assert "reason" not in queue[0]
    assert queue[1]["message"] == "needs 30.0 GiB"


def test_a_slice_name_that_another_made_up_is_not_told() -> None:
    other = job("x", None, namespace=SECRET, slice=f"{SECRET} GiB", status=WAITS)
    (row,) = of_kind(mine(scene(partition(), other)), "job")
    assert row["asks"] == ""


def test_a_partition_that_only_anothers_job_names_is_not_told() -> None:
    other = job("x", namespace=SECRET, partition=f"{SECRET}-gpus", status=WAITS)
    whole = scene(partition(), other)
    assert f"partition/{SECRET}-gpus" in whole
    assert SECRET not in json.dumps(mine(whole))


def test_a_missing_partition_that_ones_own_job_names_is_told() -> None:
    seen = mine(scene(job("x", partition="typo", status=WAITS | {"message": ""})))
    assert seen["partition/typo"]["exists"] is False


def test_what_policies_say_is_for_those_who_may_see_all() -> None:
    body = partition(policy={"name": "fifo", "shadow": ["sjf"]})
    body["status"] |= {
        "conditions": [{"type": "PolicyHealthy", "status": "False", "message": SECRET}],
        "shadow": [{"name": "sjf", "cycles": 3, "agreed": 2, "message": SECRET}],
    }
    whole = scene(body)["partition/shared"]
    assert whole["policy"]["message"] == SECRET
    own = mine({"partition/shared": whole})["partition/shared"]
    assert SECRET not in json.dumps(own)
    assert own["policy"]["healthy"] is False
    assert own["shadow"][0]["agreed"] == 2


def test_the_namespaces_to_ask_about_are_those_of_slices_and_of_the_queue() -> None:
    assert namespaces_of(small()) == {"team", SECRET}


def test_keys_tell_nothing_of_the_jobs() -> None:
    assert not any("train" in key or "next" in key for key in small())


def test_a_shadow_policy_that_has_not_decided_is_shown() -> None:
    whole = scene(partition(policy={"name": "fifo", "shadow": ["sjf"]}))["partition/shared"]
    assert whole["shadow"][0] | {"message": ""} == {
        "name": "sjf", "cycles": 0, "agreed": 0, "placements": 0, "failures": 0, "message": "",
    }  # fmt: skip


def state_seen(*, ready: bool, told: str | None) -> str:
    body = partition(gpus=1)
    if told:
        body["status"]["gpuSummary"] = [{"name": "gpu-0", "state": told}]
    state = state_of(lists(body, server("gpu-0", ready=ready)))
    state.nodes.clear()  # the console may not read them
    return str(scene_of(state)["gpu/gpu-0"]["state"])


def test_whether_a_gpus_node_is_up_is_taken_from_the_operator() -> None:
    assert state_seen(ready=True, told="Ready") == "Ready"
    assert state_seen(ready=True, told="Unready") == "Unready"
    assert state_seen(ready=False, told="Ready") == "Unready"
    assert state_seen(ready=True, told=None) == "Ready"


# What has changed.


def test_nothing_is_sent_where_nothing_has_changed() -> None:
    whole = small()
    assert changes(whole, small() | {}) == {}


def test_that_a_name_is_hidden_is_sent_as_such() -> None:
    sent = changes({}, mine(small()))["set"]
    assert [row["namespace"] for row in sent.values() if row["kind"] == "job"] == [None, "team"]


def patched(old: Scene, patch: dict[str, Any]) -> Scene:
    """What the page makes of a patch."""
    new = {key: dict(entity) for key, entity in old.items() if key not in patch.get("gone", ())}
    for key, fields in patch.get("set", {}).items():
        new[key] = {k: v for k, v in (new.get(key, {}) | fields).items() if v is not None}
    return new


entities = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1)
scenes = st.dictionaries(st.sampled_from("xyz"), entities)


@given(scenes, scenes)
def test_a_patch_makes_the_new_scene_of_the_old_one(old: Scene, new: Scene) -> None:
    assert patched(old, changes(old, new)) == new


@given(scenes, scenes)
def test_a_patch_has_only_fields_that_differ(old: Scene, new: Scene) -> None:
    for key, fields in changes(old, new).get("set", {}).items():
        for name, value in fields.items():
            assert old.get(key, {}).get(name, "missing") != value
