"""Selects objects by their labels, as Kubernetes does."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from partita.models.base import LabelValue, Model, rule, rules

__all__ = ["LabelSelector", "LabelSelectorRequirement"]


class LabelSelectorRequirement(Model):
    """One requirement on a label."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.operator in ['Exists', 'DoesNotExist'] || "
                "(has(self.values) && size(self.values) > 0)",
                "operators In and NotIn compare with values: write at least one in values, "
                "or use Exists or DoesNotExist",
            ),
            rule(
                "self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
                "operators Exists and DoesNotExist compare with nothing: remove values, "
                "or use In or NotIn",
            ),
        )
    )

    key: Annotated[str, Field(max_length=317)]
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value relates to `values`."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=100)] = ()
    """The values; empty for Exists and DoesNotExist."""

    def matches(self, labels: dict[str, str]) -> bool:
        """Tell whether these labels fulfil it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


class LabelSelector(Model):
    """Selects objects by their labels; an empty selector selects all."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Labels that must have exactly these values."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=100)] = ()
    """Requirements that must all hold."""

    def matches(self, labels: dict[str, str]) -> bool:
        """Tell whether these labels are selected."""
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            e.matches(labels) for e in self.match_expressions
        )
