"""What commands print with `-o json`, compared with their published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["check_output"]

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "json-output"


def check_output(command: str, printed: str) -> Any:
    """Return what a command printed, with all keys of its schema and no others."""
    file = SCHEMAS / f"{command}.json"
    job = SCHEMAS / "sharedgpujob.json"
    schema = json.loads((file if file.exists() else job).read_text(encoding="utf-8"))
    found = json.loads(printed)
    Draft202012Validator(closed(schema)).validate(found)
    return found


def closed(node: Any) -> Any:
    if isinstance(node, list):
        return [closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    result = {key: closed(value) for key, value in node.items()}
    if node.get("type") == "object" and "properties" in node:
        result.setdefault("additionalProperties", False)
    return result
