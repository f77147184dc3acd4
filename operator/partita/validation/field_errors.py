"""A violation at one field, with the API server's message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from typing_extensions import override

from partita.models.errors import text_path

__all__ = ["FieldError", "Key", "Path", "duplicates", "value_at"]


class Key(str):
    """A key of a map in a field path. The API server writes it in brackets."""

    __slots__ = ()


Path = tuple[str | int, ...]
"""Keys and indices from the root of an object or schema."""

_REASONS = {
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Unsupported value": "FieldValueNotSupported",
    "Duplicate value": "FieldValueDuplicate",
    "Not found": "FieldValueNotFound",
    "Forbidden": "FieldValueForbidden",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Invalid type": "FieldValueTypeInvalid",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violation at one field.

    Attributes
    ----------
    path
        Keys and indices from the object's root; empty for the object itself.
    type
        One of the API server's error types, such as ``Invalid value``.
    detail
        Description of the error.
    value
        The invalid value; `Ellipsis` if the message contains no value.
    """

    path: Path
    type: str
    detail: str = ""
    value: Any = ...

    @property
    def field(self) -> str:
        """The path in the API server's notation, such as ``spec.slices[0].name``."""
        return text_path(self.path, (int, Key)) or "<nil>"

    @property
    def message(self) -> str:
        """The error type, the value and the detail, without the field."""
        text = "Invalid value" if self.type == "Invalid type" else self.type
        if self.value is not ... and self.type not in ("Required value", "Forbidden", "Too long"):
            text += f": {orjson.dumps(self.value).decode()}"
        return f"{text}: {self.detail}" if self.detail else text

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def cause(self) -> dict[str, str]:
        """Return the violation as an entry of ``details.causes`` in a `Status`."""
        return {"reason": _REASONS[self.type], "message": self.message, "field": self.field}


def value_at(root: Any, path: Path) -> Any:
    """Return the value at a path, which exists."""
    for step in path:
        root = root[step]
    return root


def duplicates(
    items: Iterable[Mapping[str, Any]], place: Path, key: str, *, below: bool = True
) -> list[FieldError]:
    """Return a violation for each item of a list with the key of an earlier one.

    Parameters
    ----------
    below
        Whether the violation is at the key instead of the item.
    """
    seen: set[Any] = set()
    errors = []
    for i, item in enumerate(items):
        if item[key] in seen:
            where = (*place, i, key) if below else (*place, i)
            errors.append(FieldError(where, "Duplicate value", "", item[key]))
        seen.add(item[key])
    return errors
