"""JSON Schemas of what commands print with `-o json`, from the types of their data."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import GenericAlias, UnionType
from typing import Any, get_args, get_origin

import click
from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from partita.cli import COMMANDS
from partita.cli import main as partita
from partita.cli.options import OutputOption
from partita.console.as_data import camel_case
from partita.models import crd
from partita.models.base import Resource
from partita.models.described_model import field_docstrings

__all__ = ["description", "schema_file", "schemas", "shapes"]

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CONFIG = ConfigDict(alias_generator=camel_case)
_NONE = re.compile(r"(^|\. | )None\b")
"""Python's word for null, without quotation marks."""
_PACKAGES = ("partita.", "partita_policies.", "partita_research.", "partita_testcluster.")


def shapes() -> dict[str, Any]:
    """Return the type of the data of each command that has the option `--output`."""
    context = click.Context(partita)
    commands = {name: partita.get_command(context, name) for name in COMMANDS}
    found = {}
    for name, command in commands.items():
        for option in command.params if command is not None else ():
            if isinstance(option, OutputOption):
                module, _, attribute = option.shape.partition(":")
                found[name] = getattr(import_module(module), attribute)
    return found


def schemas() -> dict[str, Schema]:
    """Return the schemas by name of their file."""
    return {
        schema_file(name, shape): {"$schema": _DIALECT, **_schema(shape)}
        for name, shape in shapes().items()
    }


def schema_file(command: str, shape: Any) -> str:
    """Return the name of the file with the schema; commands that print a resource share one."""
    return f"{shape.__name__.lower() if _is_resource(shape) else command}.json"


def description(shape: Any) -> str:
    """Return what a type of data is, in one line."""
    arguments = get_args(shape)
    if get_origin(shape) is list:
        return f"List: {description(arguments[0])}"
    if isinstance(shape, UnionType):
        return " Or: ".join(map(description, arguments))
    if _is_resource(shape):
        return f"The {shape.__name__}, as the API server has it."
    return " ".join((inspect.getdoc(shape) or "").partition("\n\n")[0].split())


def _is_resource(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, Resource)


def _schema(shape: Any) -> Schema:
    if _is_resource(shape):
        (resource,) = (one for one in crd.RESOURCES if one.model is shape)
        (version,) = crd.crd_of(resource)["spec"]["versions"]
        found: Schema = version["schema"]["openAPIV3Schema"]
        return found
    # The configuration of an adapter is for what the type contains, not for the type itself.
    inside: Any = GenericAlias(list, (shape,))
    adapter: TypeAdapter[Any] = TypeAdapter(inside, config=_CONFIG)
    raw = adapter.json_schema(mode="serialization", schema_generator=_Documented)
    definitions = {name: _plain(one) for name, one in raw.get("$defs", {}).items()}
    return {**_plain(raw["items"]), **({"$defs": definitions} if definitions else {})}


class _Documented(GenerateJsonSchema):
    """Describes classes and their fields by their docstrings."""

    @override
    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _described(super().dataclass_schema(schema), schema["cls"])

    @override
    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _described(super().typed_dict_schema(schema), schema["cls"])


def _described(schema: JsonSchemaValue, described: type) -> JsonSchemaValue:
    schema["description"] = inspect.getdoc(described)
    for name, text in field_docstrings(_lineage(described)).items():
        schema["properties"][camel_case(name)]["description"] = text
    return schema


def _lineage(described: type) -> Iterator[type]:
    """Yield our bases of a dataclass or TypedDict, and itself at the end."""
    for base in getattr(described, "__orig_bases__", described.__bases__):
        if isinstance(base, type) and base.__module__.startswith(_PACKAGES):
            yield from _lineage(base)
    yield described


def _plain(node: Any) -> Any:
    """Return a schema without what is for forms, for defaults and for the API server.

    Commands print all fields, also those that a model need not be given, and memory in bytes.
    """
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    result: Schema = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: _plain(one) for name, one in value.items()}
        elif key == "description":
            result[key] = _text(value)
        elif key not in {"title", "default"} and not key.startswith("x-kubernetes-"):
            result[key] = _plain(value)
    if node.get("x-kubernetes-int-or-string"):
        kept = {key: result[key] for key in ("description",) if key in result}
        return {"type": "integer", **kept}
    if "properties" in result:
        result["required"] = list(result["properties"])
    return result


def _text(docstring: str) -> str:
    """Return a description in the words of JSON."""
    text = " ".join(docstring.split()).replace("(bytes, as a quantity)", "(bytes)")
    return _NONE.sub(lambda found: f"{found[1]}{'null' if found[1] == ' ' else 'Null'}", text)
