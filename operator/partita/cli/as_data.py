"""Converts what a command has found into data for `--output json` and `yaml`. Pure functions."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any

__all__ = ["as_data", "camel_case"]


def camel_case(name: str) -> str:
    """Return the key of a field."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def as_data(value: Any) -> Any:
    """Return dictionaries and lists; the fields of dataclasses and models are in camelCase.

    Memory in bytes and durations in seconds are numbers; times are RFC 3339 strings. Every field is
    there, also one without a value.
    """
    match value:
        case Enum():
            return value.value
        case date():  # a datetime is one, too
            return value.isoformat()
        case Mapping():
            return {str(key): as_data(inner) for key, inner in value.items()}
        case list() | tuple():
            return [as_data(inner) for inner in value]
        case _ if is_dataclass(value):
            return {camel_case(f.name): as_data(getattr(value, f.name)) for f in fields(value)}
        case _ if models := getattr(type(value), "model_fields", None):
            # A model, recognized without importing pydantic.
            return {
                field.alias or camel_case(name): as_data(getattr(value, name))
                for name, field in models.items()
            }
        case _:
            return value
