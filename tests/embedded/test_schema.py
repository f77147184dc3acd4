import pytest

from partita.validation.schema import Schema, compile_schema
from partita.validation.values import validate


def with_fields(**properties) -> Schema:
    return compile_schema(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    )


def messages(found) -> list[str]:
    return [str(error) for error in found]


def check(schema: dict, value) -> list[str]:
    return messages(validate(with_fields(x=schema), {"spec": {"x": value}}))


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, True, 'Invalid value: true: spec.x in body must be of type integer: "boolean"'),
        ({"type": "string"}, None, 'Invalid value: "null": spec.x in body must be of type string: "null"'),
        ({"type": "object"}, [], 'Invalid value: "array": spec.x in body must be of type object: "array"'),
        ({"x-kubernetes-int-or-string": True}, 1.5,
         'Invalid value: 1.5: spec.x in body must be of type integer,string: "number"'),
        ({"type": "string", "pattern": "^a$"}, "a\n", 'Invalid value: "a\\n": spec.x in body should match \'^a$\''),
    ],
)  # fmt: skip
def test_says_what_is_wrong_as_the_api_server_does(schema, value, message):
    """Other rules are compared with a real API server by `conformance/test_validation.py`."""
    separator = "" if message[0] in ".[" else ": "
    assert check(schema, value) == [f"spec.x{separator}{message}"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number"}, 1),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "no-such-format"}, "anything"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05.678901Z"),
        ({"x-kubernetes-int-or-string": True, "maxLength": 1}, 1234),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"any": [1, None]}),
    ],
)
def test_accepts_what_fits(schema, value):
    assert check(schema, value) == []


PORTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["port", "protocol"],
    "items": {
        "type": "object",
        "properties": {
            "port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"},
            "name": {
                "type": "string",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "stay"}],
            },
        },
    },
}


def test_items_of_a_list_map_are_told_apart_by_keys_and_their_defaults():
    found = check(PORTS, [{"port": 1}, {"port": 1, "protocol": "UDP"}, {"port": 1}])
    assert found == ['spec.x[2]: Duplicate value: {"port":1,"protocol":"TCP"}']


def test_items_of_a_list_map_are_compared_with_their_former_selves():
    schema = with_fields(x=PORTS)
    old = {"spec": {"x": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}}
    new = {"spec": {"x": [{"port": 2, "name": "b"}, {"port": 1, "name": "c"}]}}
    assert messages(validate(schema, new, old)) == ['spec.x[1].name: Invalid value: "c": stay']


def test_what_did_not_change_is_not_refused_again():
    schema = with_fields(x={"type": "integer", "minimum": 5}, y={"type": "string"})
    old = {"spec": {"x": 1, "y": "a"}}
    assert validate(schema, {"spec": {"x": 1, "y": "b"}}, old) == []
    assert len(validate(schema, {"spec": {"x": 2, "y": "b"}}, old)) == 1


def test_defaults_are_filled_in_at_every_depth():
    schema = with_fields(
        a={"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}},
        m={
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"c": {"type": "string", "default": "d"}},
            },
        },
    )
    obj = {"spec": {"m": {"k": {}}}}
    schema.default(obj)
    assert obj == {"spec": {"a": {"b": 3}, "m": {"k": {"c": "d"}}}}
    other = {"spec": {}}
    schema.default(other)
    other["spec"]["a"]["b"] = 4
    third = {"spec": {}}
    schema.default(third)
    assert third["spec"]["a"]["b"] == 3
