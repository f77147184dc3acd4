"""Converts what was found into data, for `--output json` and `yaml` and for the page. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from math import isfinite
from typing import Any

__all__ = ["as_data", "camel_case"]


def camel_case(name: str) -> str:
    """Return the key of a field."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def as_data(value: Any, time: Callable[[Any], Any] = lambda when: when.isoformat()) -> Any:
    """Return dictionaries and lists; the fields of dataclasses and models are in camelCase.

    Memory in bytes and durations in seconds are numbers. Every field is there, also one without a
    value, or whose value is infinite or no number, which JSON lacks.

    Parameters
    ----------
    time
        Converts times and dates; usually to RFC 3339 strings.
    """
    match value:
        case Enum():
            return value.value
        case float() if not isfinite(value):
            return None
        case date():  # a datetime is one, too
            return time(value)
        case Mapping():
            return {str(key): as_data(inner, time) for key, inner in value.items()}
        case list() | tuple():
            return [as_data(inner, time) for inner in value]
        case _ if is_dataclass(value):
            return {
                camel_case(f.name): as_data(getattr(value, f.name), time) for f in fields(value)
            }
        case _ if models := getattr(type(value), "model_fields", None):
            # A model, recognized without importing pydantic.
            return {
                field.alias or camel_case(name): as_data(getattr(value, name), time)
                for name, field in models.items()
            }
        case _:
            return value
