"""JSON schemas of all that an API server serves, made of its own OpenAPI documents.

kubeconform takes a schema a kind. What is known of a kind is closed: a field that no schema has is
an error, as it is for `kubectl apply --validate=strict`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.clusters import ApiServer

__all__ = ["closed", "write_schemas"]

Json = dict[str, Any]


async def write_schemas(server: ApiServer, folder: Path) -> None:
    """Write a file for each kind, `<group>_<kind>_<version>.json`."""
    async with server.session() as session:
        api = server.api(session)
        index = (await api.get("/openapi/v3")).ok().body["paths"]
        for path in index:
            if not path.startswith(("api/", "apis/")):
                continue
            document = (await api.get(f"/openapi/v3/{path}")).ok().body
            components = document.get("components", {}).get("schemas", {})
            definitions = {name: closed(schema) for name, schema in components.items()}
            for name, schema in components.items():
                for kind in schema.get("x-kubernetes-group-version-kind", []):
                    # kubeconform takes the first part of apiVersion for the group.
                    group = kind["group"] or kind["version"]
                    file = f"{group}_{kind['kind'].lower()}_{kind['version']}.json"
                    whole = {"$ref": f"#/definitions/{name}", "definitions": definitions}
                    (folder / file).write_text(json.dumps(whole))


def closed(schema: Any) -> Any:
    """Return a schema that takes no other fields than it names."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        # Names of fields are no keywords, whatever they are called.
        key: {name: closed(field) for name, field in value.items()}
        if key == "properties"
        else closed(value)
        for key, value in schema.items()
        if key not in {"default", "enum", "example"}
    }
    found |= {key: schema[key] for key in ("enum",) if key in schema}
    if isinstance(reference := schema.get("$ref"), str):
        found["$ref"] = reference.replace("#/components/schemas/", "#/definitions/")
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and "additionalProperties" not in schema and not open_ended:
        found["additionalProperties"] = False
    return found
