"""Checks that a Pod can be built from a job's template.

The CRD validates only a small part of the template (the schema of a Pod would be a hundred times as
long), and the API server validates the Pod only on creation. This module checks the fields that
Partita reads or changes.
"""

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from partita.models.base import Model
from partita.models.errors import FieldProblem, field_problems
from partita.models.quantities import parse_amount
from partita.models.template import PodTemplate
from partita.pods.node_rules import PlacementSpec

__all__ = ["TemplateError", "template_problems"]


class TemplateError(ValueError):
    """A template from which no Pod can be built. The message contains a correction."""


class _Amounts(Model):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[int, BeforeValidator(partial(parse_amount, "memory"))]]

    cpu: Annotated[int, BeforeValidator(partial(parse_amount, "cpu"))] = 0


class _Resources(Model):
    requests: _Amounts | None = None
    limits: _Amounts | None = None
    claims: tuple[Any, ...] | None = None


class _Variable(Model):
    name: str
    value: str | None = None


class _NamedContainer(Model):
    name: Annotated[str, Field(min_length=1)]
    env: tuple[_Variable, ...] | None = None
    resources: _Resources | None = None


class _Metadata(Model):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def _not_empty(containers: object) -> object:
    # A minimum length would also count those with errors as missing.
    if not containers:
        raise ValueError("is empty: write at least one container")
    return containers


class _PodSpec(PlacementSpec):
    containers: Annotated[tuple[_NamedContainer, ...], BeforeValidator(_not_empty)]
    init_containers: tuple[_NamedContainer, ...] | None = None
    resources: _Resources | None = None
    overhead: _Amounts | None = None
    restart_policy: str | None = None
    runtime_class_name: str | None = None


class _Template(Model):
    metadata: _Metadata
    spec: _PodSpec


class _Job(Model):
    template: _Template


def template_problems(template: PodTemplate) -> tuple[FieldProblem, ...]:
    """Return the errors in a template. Their paths begin with `template`."""
    try:
        _Job.model_validate({"template": dict(template)})
    except ValidationError as error:
        return field_problems(error)
    return ()
