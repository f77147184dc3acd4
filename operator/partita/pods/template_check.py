"""Checks that a Pod can be built from a job's template.

The CRD validates only a small part of the template (the schema of a Pod would be a hundred times as
long), and the API server validates the Pod only on creation. This module checks the fields that
Partita reads or changes.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from partita.models.errors import describe
from partita.models.quantities import parse_amount
from partita.models.template import PodTemplate
from partita.pods.node_rules import NodeRules

__all__ = ["TemplateError", "template_problems"]


class TemplateError(ValueError):
    """A template from which no Pod can be built. The message contains a correction."""


def template_problems(template: PodTemplate) -> tuple[str, ...]:
    """Return the errors in a template. Each sentence begins with the field's path."""
    return (*_metadata(template.metadata), *_spec(template.spec))


def _metadata(metadata: dict[str, Any]) -> Iterator[str]:
    for kind in ("labels", "annotations"):
        values = metadata.get(kind) or {}
        path = f"template.metadata.{kind}"
        if not isinstance(values, dict):
            yield f"{path} is no mapping: write key: value pairs"
        elif not all(isinstance(v, str) for v in values.values()):
            yield f"{path} has a value that is no string: put it in quotes"


def _spec(spec: dict[str, Any]) -> Iterator[str]:
    if not spec.get("containers"):
        yield "template.spec.containers is empty: write at least one container"
    if not isinstance(spec.get("restartPolicy") or "", str):
        yield "template.spec.restartPolicy is no string: leave it out"
    if not isinstance(spec.get("runtimeClassName") or "", str):
        yield "template.spec.runtimeClassName is no string: write the name of a RuntimeClass"
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind) or []
        if not isinstance(containers, list):
            yield f"template.spec.{kind} is no list: write one container per item"
            continue
        for index, container in enumerate(containers):
            path = f"template.spec.{kind}[{index}]"
            name = container.get("name") if isinstance(container, dict) else None
            if not isinstance(name, str) or not name:
                yield f"{path} has no name: write name, image and what else it needs"
                continue
            yield from _env(container.get("env") or [], f"{path}.env")
            yield from _resources(container.get("resources") or {}, f"{path}.resources")
    yield from _resources(spec.get("resources") or {}, "template.spec.resources")
    yield from _amounts(spec.get("overhead") or {}, "template.spec.overhead")
    try:
        NodeRules.read(spec)
    except ValidationError as error:
        yield describe(error)


def _env(env: object, path: str) -> Iterator[str]:
    if not isinstance(env, list):
        yield f"{path} is no list: write items with name and value"
        return
    for index, entry in enumerate(env):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            yield f"{path}[{index}] has no name: write name and value"
        elif not isinstance(entry.get("value") or "", str):
            yield f"{path}[{index}] ({entry['name']}) has a value that is no string: quote it"


def _resources(resources: object, path: str) -> Iterator[str]:
    if not isinstance(resources, dict):
        yield f"{path} is no mapping: write requests and limits"
        return
    if not isinstance(resources.get("claims") or [], list):
        yield f"{path}.claims is no list: write one name per item"
    for kind in ("requests", "limits"):
        yield from _amounts(resources.get(kind) or {}, f"{path}.{kind}")


def _amounts(amounts: object, path: str) -> Iterator[str]:
    if not isinstance(amounts, dict):
        yield f"{path} is no mapping: write resource: amount pairs"
        return
    for name, quantity in amounts.items():
        try:
            parse_amount(name, quantity)
        except ValueError as error:
            yield f"{path}.{name}: {error}"
