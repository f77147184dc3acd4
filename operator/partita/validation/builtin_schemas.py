"""The schemas of Kubernetes' own kinds.

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
    file = files("partita.validation").joinpath("builtin_schemas.json")
    models: dict[str, dict[str, Any]] = orjson.loads(file.read_bytes())
    return models


@cache
def compiled_schemas() -> dict[tuple[str, str], Schema]:
    """Return the compiled schema of each kind, by its apiVersion and its name."""
    models = schemas()
    compiler = Compiler(models)
    return {
        (f"{kind['group']}/{kind['version']}".removeprefix("/"), kind["kind"]): compiler.compile(
            with_type_meta(model)
        )
        for model in models.values()
        for kind in model.get(_KINDS, ())
    }
