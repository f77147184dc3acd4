"""Argo CD's scripts for our kinds, run as Argo CD runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from lupa.lua51 import LuaRuntime, lua_type

__all__ = ["CONFIG_MAP", "Body", "act", "actions", "health", "scripts"]

Body = dict[str, Any]

CONFIG_MAP = Path(__file__).parents[2] / "manifests" / "argocd" / "argocd-cm.yaml"

SANDBOX = """
local date, time = os.date, os.time
string, math, io, coroutine, debug, os = nil, nil, nil, nil, nil, nil
package.loaded.os = {date = date, time = time}
"""
"""What Argo CD 3.2.11 leaves of the libraries (its util/lua/lua.go): `package`, base, `table`, and
a small `os` that is there by `require` alone."""


def scripts() -> dict[str, str]:
    """Return the ConfigMap's data."""
    data: dict[str, str] = yaml.safe_load(CONFIG_MAP.read_text())["data"]
    return data


def health(obj: Body) -> tuple[str, str]:
    """Return the state that Argo CD shows of an object, and what it says to it."""
    found = _run(scripts()[f"resource.customizations.health.{_key(obj)}"], obj)
    return found["status"], found.get("message", "")


def actions(obj: Body) -> set[str]:
    """Return the names of the actions that Argo CD offers."""
    found = _run(_actions(obj)["discovery.lua"], obj)
    return {name for name, about in found.items() if not about["disabled"]}


def act(obj: Body, name: str) -> Body:
    """Return the object after an action."""
    scripts = {a["name"]: a["action.lua"] for a in _actions(obj)["definitions"]}
    changed: Body = _run(scripts[name], obj)
    return changed


def _key(obj: Body) -> str:
    return f"{obj['apiVersion'].partition('/')[0]}_{obj['kind']}"


def _actions(obj: Body) -> Any:
    return yaml.safe_load(scripts()[f"resource.customizations.actions.{_key(obj)}"])


def _run(script: str, obj: Body) -> Any:
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    lua.execute(SANDBOX)
    lua.globals()["obj"] = lua.table_from(obj, recursive=True)
    return _plain(lua.execute(script))


def _plain(value: Any) -> Any:
    """Turn Lua's tables into dictionaries and lists; an empty table is a dictionary."""
    if lua_type(value) != "table":
        return value
    found = {key: _plain(item) for key, item in value.items()}
    return list(found.values()) if found and all(isinstance(k, int) for k in found) else found
