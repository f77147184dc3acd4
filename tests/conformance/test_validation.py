"""What a schema refuses, and in which words: structural rules, CEL and strict fields."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.objects import causes, refused, widget, widgets
from support.api import MERGE, Api


@pytest.mark.parametrize(
    ("spec", "cause", "text"),
    [
        ({"size": None}, ("FieldValueRequired", "spec.size"), "Required value"),
        ({"size": "huge"}, ("FieldValueNotSupported", "spec.size"), '"small", "large"'),
        ({"replicas": 11}, ("FieldValueInvalid", "spec.replicas"), "less than or equal to 10"),
        ({"replicas": "2"}, ("FieldValueTypeInvalid", "spec.replicas"), "must be of type integer"),
        ({"label": "UP"}, ("FieldValueInvalid", "spec.label"), "should match '^[a-z]+$'"),
        ({"label": "a"}, ("FieldValueInvalid", "spec.label"), "at least 2 chars"),
        ({"label": "abcdef"}, ("FieldValueTooLong", "spec.label"), "more than 5"),
        ({"since": "yesterday"}, ("FieldValueTypeInvalid", "spec.since"), "date-time"),
        ({"steps": []}, ("FieldValueInvalid", "spec.steps"), "at least 1 items"),
        ({"steps": ["one"]}, ("FieldValueTypeInvalid", "spec.steps[0]"), "must be of type integer"),
        ({"tags": ["a", "b", "c", "d"]}, ("FieldValueTooMany", "spec.tags"), "at most 3 items"),
        ({"tags": ["a", "a"]}, ("FieldValueDuplicate", "spec.tags[1]"), "Duplicate value"),
        ({"ports": [{"name": "a"}, {"name": "a"}]}, ("FieldValueDuplicate", "spec.ports[1]"),
         "Duplicate value"),
        ({"ports": [{"port": 1}]}, ("FieldValueRequired", "spec.ports[0].name"), "Required value"),
        ({"labels": {"a": "1", "b": "2", "c": "3", "d": "4"}}, ("FieldValueTooMany", "spec.labels"),
         "at most 3"),
        ({"labels": {"a": 1}}, ("FieldValueTypeInvalid", "spec.labels.a"), "of type string"),
        ({"template": {"known": "x"}}, ("FieldValueTypeInvalid", "spec.template.known"), "integer"),
        ({"amount": "many"}, ("FieldValueInvalid", "spec.amount"),
         "write a quantity above zero, such as 4Gi"),
        ({"minimum": 3, "maximum": 2}, ("FieldValueInvalid", "spec.minimum"),
         "write a minimum of at most the maximum"),
    ],
)  # fmt: skip
async def test_refuses_and_names_the_field(
    api: Api, namespace: str, spec: dict[str, Any], cause: tuple[str, str], text: str
):
    answer = await api.post(widgets(namespace), widget(**spec))
    assert answer.status == 422
    status = answer.body
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", 422)
    assert status["reason"] == "Invalid"
    assert status["details"]["name"] == "w"
    assert status["details"]["kind"] == "Widget"
    assert causes(status) == {cause}
    assert any(text in cause["message"] for cause in status["details"]["causes"])
    assert status["message"].startswith('Widget.conformance.partita.dev "w" is invalid: ')
    assert cause[1] in status["message"]


async def test_rules_are_checked_beside_bounds_but_not_on_what_lacks_its_shape(
    api: Api, namespace: str
):
    wrong_bound = await api.post(widgets(namespace), widget(replicas=11, minimum=3, maximum=2))
    assert causes(wrong_bound.body) == {
        ("FieldValueInvalid", "spec.replicas"),
        ("FieldValueInvalid", "spec.minimum"),
    }
    wrong_shape = await api.post(widgets(namespace), widget(size="huge", minimum=3, maximum=2))
    assert causes(wrong_shape.body) == {("FieldValueNotSupported", "spec.size")}
    assert (
        "some validation rules were not checked because the object was invalid"
        in (wrong_shape.body["message"])
    )


async def test_a_transition_rule_holds_on_update_only(api: Api, namespace: str):
    (await api.post(widgets(namespace), widget(color="red"))).ok()
    answer = await api.patch(widgets(namespace, "w"), {"spec": {"color": "blue"}})
    refused(answer, "FieldValueInvalid", "spec.color")
    assert "color cannot be changed; make another widget" in answer.body["message"]
    same = await api.patch(widgets(namespace, "w"), {"spec": {"color": "red", "size": "large"}})
    assert same.status == 200


async def test_a_transition_rule_on_the_parent_sees_removal(api: Api, namespace: str):
    (await api.post(widgets(namespace), widget(color="red"))).ok()
    answer = await api.patch(widgets(namespace, "w"), {"spec": {"color": None}})
    refused(answer, "FieldValueInvalid", "spec")


async def test_refuses_another_kind_in_the_body(api: Api, namespace: str):
    answer = await api.post(widgets(namespace), widget() | {"kind": "Gadget"})
    refused(answer, "FieldValueInvalid", "kind")


async def test_refuses_another_version_in_the_body(api: Api, namespace: str):
    answer = await api.post(widgets(namespace), widget() | {"apiVersion": "v1"})
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("body", ["{", "[]", '"text"', ""])
async def test_refuses_a_body_that_is_no_object(api: Api, namespace: str, body: str):
    answer = await api.post(widgets(namespace), body)
    assert answer.status == 400
    assert answer.body["reason"] == "BadRequest"


async def test_strict_field_validation_names_unknown_fields(api: Api, namespace: str):
    obj = widget(sise="small", options={"speed": 1}, ports=[{"name": "a", "x": 1}])
    answer = await api.post(widgets(namespace), obj, fieldValidation="Strict")
    assert answer.status == 400
    assert answer.body["reason"] == "BadRequest"
    assert 'unknown field "spec.sise"' in answer.body["message"]
    assert 'unknown field "spec.options.speed"' in answer.body["message"]
    assert 'unknown field "spec.ports[0].x"' in answer.body["message"]


async def test_field_validation_warns_unless_told_otherwise(api: Api, namespace: str):
    answer = await api.post(widgets(namespace), widget("a", sise="small"), fieldValidation="Warn")
    assert answer.status == 201
    assert answer.headers["Warning"] == r'299 - "unknown field \"spec.sise\""'
    silent = await api.post(widgets(namespace), widget("b", sise="x"), fieldValidation="Ignore")
    assert silent.status == 201
    assert "Warning" not in silent.headers


async def test_status_is_validated_too(api: Api, namespace: str):
    (await api.post(widgets(namespace), widget())).ok()
    answer = await api.patch(f"{widgets(namespace, 'w')}/status", {"status": {"phase": "Maybe"}})
    refused(answer, "FieldValueNotSupported", "status.phase")


async def test_strict_field_validation_covers_patches(api: Api, namespace: str):
    (await api.post(widgets(namespace), widget())).ok()
    patch = {"spec": {"sise": "small"}}
    answer = await api.patch(widgets(namespace, "w"), patch, MERGE, fieldValidation="Strict")
    assert answer.status in {400, 422}
    assert 'unknown field "spec.sise"' in answer.body["message"]
