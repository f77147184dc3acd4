"""Conversion of pydantic's JSON schema to the structural schema that a CRD needs.

The rules are in
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
    """Return a model's schema in the form that CustomResourceDefinitions require.

    References are resolved. Titles, `null` alternatives and defaults that only mean an unset field
    are removed. Descriptions and the additions of `json_schema_extra` are kept.
    """
    raw = model.model_json_schema(by_alias=True, mode="serialization")
    return _rewrite(raw, raw.get("$defs", {}))


def without_defaults(schema: Schema) -> Schema:
    """Return a schema without defaults, so that the API server leaves unset fields unset."""
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
            case "title" | "$defs" | "propertyNames":  # the API server does not know the last one
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
                # Pydantic also uses lengths for a list's items and a map's entries. The value is
                # copied because YAML would write an object that occurs twice as an alias.
                result[lengths.get(key, key)] = deepcopy(value)
    if "default" in result:
        result |= _default(result.pop("default"), result.get("properties", {}))
    return dict(sorted(result.items(), key=_order))


def _resolve(node: Schema, definitions: Schema) -> Schema:
    """Resolve references, and reduce `X | None` to `X`."""
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
    """Return a default. That of an object is empty: the API server sets those of its fields."""
    if isinstance(value, dict):
        return {"default": {}} if any("default" in p for p in properties.values()) else {}
    return {} if value in (None, "", []) else {"default": value}


def _order(entry: tuple[str, Any]) -> tuple[int, str]:
    """Return a sort key: the most important keys come first, nested schemas last."""
    key, _ = entry
    return (_FIRST.index(key) if key in _FIRST else len(_FIRST) + (key in _LAST), key)
