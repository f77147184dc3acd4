"""Converts views and resources into data for `--output json` and `yaml`. Pure functions."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

__all__ = ["as_data"]


def as_data(value: Any) -> Any:
    """Return dictionaries and lists with keys in camelCase.

    Memory in bytes and durations in seconds are numbers; times are RFC 3339 strings.
    """
    match value:
        case BaseModel():
            names = type(value).model_fields
            return {to_camel(name): as_data(getattr(value, name)) for name in names}
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): as_data(inner) for key, inner in value.items()}
        case str():
            return value
        case list() | tuple():
            return [as_data(inner) for inner in value]
        case _ if is_dataclass(value):
            return {to_camel(f.name): as_data(getattr(value, f.name)) for f in fields(value)}
        case _:
            return value
