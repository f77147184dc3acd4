"""Describes the fields of models in their CRDs by the docstrings of the fields."""

import ast
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

__all__ = ["DescribedModel", "field_docstrings"]


class DescribedModel(BaseModel):
    """A model whose schema has the docstrings of its fields.

    pydantic's `use_attribute_docstrings` reads the sources of all models when they are imported,
    which takes half of the time of the import.
    """

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        bases = reversed(cls.__mro__[: cls.__mro__.index(BaseModel)])
        for name, text in field_docstrings(bases).items():
            properties[cls.model_fields[name].alias or name] |= {"description": text}
        return schema


def field_docstrings(classes: Iterable[type]) -> dict[str, str]:
    """Return the docstrings below the fields of classes; those of later ones take precedence."""
    found: dict[str, str] = {}
    for base in classes:
        for field, below in pairwise(_bodies(base.__module__)[base.__name__]):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(field.target)] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


@cache
def _bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class of a module. `inspect` would parse it for each class."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
