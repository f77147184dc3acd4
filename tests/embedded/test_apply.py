import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.validation.schema import CRDValidator
from partita_testcluster.apiserver.apply import Manager, apply_config, record_update
from partita_testcluster.apiserver.errors import APIError

ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "value": {"type": "integer"}},
}
SCHEMA = CRDValidator(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "whole": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                    "list": {"type": "array", "items": {"type": "integer"}},
                    "set": {
                        "type": "array",
                        "items": {"type": "string"},
                        "x-kubernetes-list-type": "set",
                    },
                    "map": {
                        "type": "array",
                        "items": ITEM,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                    },
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
).schema
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def obj(**spec):
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec}


def applied(live, manager: str, *, force: bool = False, now: str = NOW, **spec):
    who = Manager(manager, "Apply", "g/v1")
    return apply_config(SCHEMA, live, obj(**spec), who, now, force=force)


def updated(live, manager: str, now: str = NOW, subresource: str = "", **changes):
    new = {**live, **changes, "metadata": dict(live["metadata"])}
    record_update(SCHEMA, live, new, Manager(manager, "Update", "g/v1", subresource), now)
    return new


def owned(live, manager: str):
    entries = [e for e in live["metadata"]["managedFields"] if e["manager"] == manager]
    return entries[0]["fieldsV1"].get("f:spec") if entries else None


def test_an_applier_owns_what_it_names():
    live = applied({"metadata": {}}, "m", a=1, labels={"k": "v"}, list=[1], set=["x"],
                   whole={"k": "v"}, map=[{"name": "i", "value": 1}])  # fmt: skip
    assert live["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "g/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:spec": {
                    "f:a": {},
                    "f:labels": {"f:k": {}},
                    "f:list": {},
                    "f:set": {'v:"x"': {}},
                    "f:whole": {},
                    "f:map": {'k:{"name":"i"}': {".": {}, "f:name": {}, "f:value": {}}},
                }
            },
        }
    ]


def test_an_updater_owns_what_it_changed():
    live = applied({"metadata": {}}, "m", a=1, b=1)
    live = updated(live, "u", spec={"a": 2, "b": 1})
    assert owned(live, "m") == {"f:b": {}}
    assert owned(live, "u") == {"f:a": {}}
    live = updated(live, "v", spec={"b": 1})
    assert owned(live, "u") is None


def test_a_write_that_changes_nothing_changes_no_owner():
    live = applied({"metadata": {}}, "m", a=1)
    assert updated(live, "u", now=LATER) == live
    assert applied(live, "m", a=1, now=LATER) == live


def test_a_conflict_names_each_field_and_its_owner():
    live = applied({"metadata": {}}, "m", a=1, map=[{"name": "i", "value": 1}])
    live = updated(live, "u", spec=live["spec"] | {"b": 1})
    with pytest.raises(APIError) as conflict:
        applied(live, "other", a=2, b=2, map=[{"name": "i", "value": 2}])
    assert conflict.value.code == 409
    causes = {(c["message"], c["field"]) for c in conflict.value.status["details"]["causes"]}
    assert causes == {
        ('conflict with "m"', ".spec.a"),
        ('conflict with "m"', '.spec.map[name="i"].value'),
        ('conflict with "u" using g/v1', ".spec.b"),
    }
    assert str(conflict.value).startswith("Apply failed with 3 conflicts: conflicts with ")


def test_force_takes_the_fields_over():
    live = applied({"metadata": {}}, "m", a=1, b=1)
    live = applied(live, "other", a=2, force=True)
    assert live["spec"] == {"a": 2, "b": 1}
    assert owned(live, "m") == {"f:b": {}}


def test_the_same_value_is_owned_together():
    live = applied(applied({"metadata": {}}, "m", a=1), "other", a=1)
    assert owned(live, "m") == owned(live, "other") == {"f:a": {}}
    assert applied(live, "m")["spec"] == {"a": 1}


def test_what_an_applier_no_longer_names_goes_if_it_was_its_alone():
    live = applied({"metadata": {}}, "m", a=1, labels={"x": "1", "y": "1"}, set=["p", "q"],
                   map=[{"name": "i"}, {"name": "j"}])  # fmt: skip
    live = applied(live, "other", labels={"y": "1"}, set=["q"], map=[{"name": "j"}])
    live = applied(live, "m")
    assert live["spec"] == {"labels": {"y": "1"}, "set": ["q"], "map": [{"name": "j"}]}


def test_what_others_added_to_a_map_stays_when_its_applier_leaves():
    live = applied({"metadata": {}}, "m", labels={"x": "1"})
    live = updated(live, "u", spec={"labels": {"x": "1", "y": "2"}})
    assert applied(live, "m")["spec"] == {"labels": {"y": "2"}}


def test_list_maps_keep_the_order_of_each_writer():
    live = applied({"metadata": {}}, "m", map=[{"name": "a"}, {"name": "b"}])
    live = applied(live, "other", map=[{"name": "c"}, {"name": "b"}])
    assert [i["name"] for i in live["spec"]["map"]] == ["a", "c", "b"]


@pytest.mark.parametrize("items", [[{"value": 1}], [{"name": "a"}, {"name": "a"}]])
def test_items_without_a_key_or_with_the_same_are_refused(items):
    live = applied({"metadata": {}}, "m", map=[{"name": "x"}])
    with pytest.raises(APIError):
        applied(live, "m", map=items)


def test_subresources_are_owned_apart():
    live = applied({"metadata": {}}, "m", a=1)
    live = updated(live, "m", subresource="status", status={"x": 1})
    assert len(live["metadata"]["managedFields"]) == 2
    other = Manager("other", "Apply", "g/v1", "status")
    with pytest.raises(APIError, match=r'"m" with subresource "status" using g/v1: \.status\.x'):
        apply_config(SCHEMA, live, {"metadata": {}, "status": {"x": 2}}, other, NOW, force=False)


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(0, 2),
        "labels": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=3),
        "set": st.lists(st.sampled_from("pqr"), unique=True),
        "map": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("ij")}, optional={"value": st.integers(0, 1)}
            ),
            unique_by=lambda i: i["name"],
        ),
    },
)


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), SPECS), max_size=5), SPECS)
def test_an_apply_by_force_holds_and_repeats_without_effect(history, last):
    live: dict = {"metadata": {}}
    for manager, spec in history:
        live = applied(live, manager, force=True, **spec)
    live = applied(live, "one", force=True, **last)
    for key in ("a", "labels"):
        if last.get(key):
            merged = live["spec"][key]
            assert merged == last[key] if key == "a" else last[key].items() <= merged.items()
    assert applied(live, "one", force=False, now=LATER, **last) == live


@given(st.lists(SPECS, max_size=4))
def test_an_only_applier_gets_exactly_what_it_last_applied(history):
    live: dict = {"metadata": {}}
    for spec in history:
        live = applied(live, "one", **spec)
    assert live.get("spec", {}) == (history[-1] if history else {})
