"""The schemas of Kubernetes' own kinds, as its OpenAPI documents describe them.

They are in `builtin_schemas.json`, which ``make schemas`` writes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

from partita.validation.schema import Compiler, Schema, with_type_meta

__all__ = ["compiled_schemas", "schemas"]

_KINDS: Final = "x-kubernetes-group-version-kind"


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of the kinds and of all models to which they refer, by model name."""
    read: dict[str, dict[str, Any]] = orjson.loads(
        files("partita.validation").joinpath("builtin_schemas.json").read_bytes()
    )
    return read


@cache
def compiled_schemas() -> dict[str, Schema]:
    """Return the compiled schema of each kind."""
    models = schemas()
    compiler = Compiler(models)
    return {
        kind["kind"]: compiler.compile(with_type_meta(model))
        for model in models.values()
        for kind in model.get(_KINDS, ())
    }
