"""Pydantic's JSON schema, rewritten as the structural schema that a CRD needs.

The rules are those of
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
under "Specifying a structural schema" and "Defaulting".
"""

from copy import deepcopy
from typing import Any, Literal

from pydantic import BaseModel

__all__ = ["Schema", "structural_schema", "without_defaults"]

Schema = dict[str, Any]

_FIRST = ("description", "type", "format", "enum", "default")
_LAST = {"required", "properties", "items", "additionalProperties"}
_LENGTHS = {
    "array": {"minLength": "minItems", "maxLength": "maxItems"},
    "object": {"minLength": "minProperties", "maxLength": "maxProperties"},
}


def structural_schema(model: type[BaseModel]) -> Schema:
    """Write a model's schema in the form that CustomResourceDefinitions take.

    References are put in place; titles, `null` alternatives and defaults that say no more than
    that a field is unset go. Descriptions and what `json_schema_extra` adds stay.
    """
    raw = model.model_json_schema(by_alias=True, mode="serialization")
    return _rewrite(raw, raw.get("$defs", {}))


def without_defaults(schema: Schema) -> Schema:
    """Return a schema by which the API server fills in nothing: unset stays unset."""
    result = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in result:
        result["properties"] = {k: without_defaults(v) for k, v in result["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = without_defaults(result[key])
    return result


def _rewrite(node: Schema, definitions: Schema) -> Schema:
    node = _resolve(node, definitions)
    lengths = _LENGTHS.get(node.get("type", ""), {})
    result: Schema = {}
    for key, value in node.items():
        match key:
            case "title" | "$defs":
                continue
            case "properties":
                result[key] = {name: _rewrite(item, definitions) for name, item in value.items()}
            case "items":
                result[key] = _rewrite(value, definitions)
            case "additionalProperties":
                result |= _entries(value, definitions)
            case "description":
                result[key] = " ".join(value.split())
            case _:
                # Pydantic counts a list's items and a map's entries as a length, too. Copied,
                # for YAML writes an object that occurs twice as an alias.
                result[lengths.get(key, key)] = deepcopy(value)
    if "default" in result:
        result |= _default(result.pop("default"), result.get("properties", {}))
    return dict(sorted(result.items(), key=_order))


def _resolve(node: Schema, definitions: Schema) -> Schema:
    """Put references in place and take `X` of `X | None`."""
    rest = dict(node)
    if "$ref" in rest:
        target = definitions[rest.pop("$ref").rsplit("/", 1)[1]]
    elif "anyOf" in rest and not rest.get("x-kubernetes-int-or-string"):
        [target] = (option for option in rest.pop("anyOf") if option != {"type": "null"})
    else:
        return node
    return _resolve({**target, **rest}, definitions)


def _entries(value: Schema | Literal[True], definitions: Schema) -> Schema:
    if value is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return {"additionalProperties": _rewrite(value, definitions)}


def _default(value: Any, properties: Schema) -> Schema:
    """Write a default; an object's is empty, for the API server then fills in its fields'."""
    if isinstance(value, dict):
        return {"default": {}} if any("default" in p for p in properties.values()) else {}
    return {} if value in (None, "", []) else {"default": value}


def _order(entry: tuple[str, Any]) -> tuple[int, str]:
    """Sort what a reader looks for first to the front, what nests to the end."""
    key, _ = entry
    return (_FIRST.index(key) if key in _FIRST else len(_FIRST) + (key in _LAST), key)
