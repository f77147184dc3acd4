"""Rules for the nodes of a Pod: its nodeSelector, required node affinity and tolerations.

They follow kube-scheduler's plugins NodeAffinity and TaintToleration
(https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and
.../taint-and-toleration/). Preferences, Pod (anti-)affinity and topology spread are ignored. If
these prevent a Pod from running on its node, the partition's podStartTimeout applies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from typing_extensions import override

from partita.models.base import Model
from partita.models.partition import Toleration

__all__ = ["NodeRules", "PlacementSpec", "Taint", "is_passing"]

_MOST_EXPRESSIONS = 256
"""Maximum number of expressions in one template. Each is compared with each node, so there must be
a bound. The value is an assumption: it is far above the number in usual templates."""

_Text = Annotated[str, Field(max_length=1024)]


class Taint(Model):
    """A taint of a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""

    @property
    def repels(self) -> bool:
        """Whether it excludes Pods that do not tolerate it from the node."""
        return self.effect in {"NoSchedule", "NoExecute"}

    @override
    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


def is_passing(taint: Taint) -> bool:
    """Return whether Kubernetes itself sets and removes a taint as the node's state changes.

    https://kubernetes.io/docs/reference/labels-annotations-taints/, `node.kubernetes.io/...` and
    `node.cloudprovider.kubernetes.io/...`.
    """
    return taint.key.startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"))


class _Expression(Model):
    key: _Text
    operator: _Text
    values: tuple[_Text, ...] | None = None

    def holds(self, value: str | None) -> bool:
        """Return whether it holds for a label's value, which is None if the label is missing.

        An unknown operator is assumed to hold, since the API server validates it.
        """
        values = self.values or ()
        match self.operator:
            case "In":
                return value in values
            case "NotIn":
                return value not in values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return _is_ordered(value, values, above=self.operator == "Gt")
            case _:
                return True


def _is_ordered(value: str | None, values: Sequence[str], *, above: bool) -> bool:
    try:
        one, other = int(value or ""), int(values[0])
    except (IndexError, ValueError):
        return False
    return one > other if above else one < other


class _Term(Model):
    match_expressions: tuple[_Expression, ...] | None = None
    match_fields: tuple[_Expression, ...] | None = None

    def holds(self, node: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node fulfils all its expressions. No node fulfils an empty term."""
        expressions, fields = self.match_expressions or (), self.match_fields or ()
        return (
            bool(expressions or fields)
            and all(e.holds(labels.get(e.key)) for e in expressions)
            # `metadata.name` is the only supported field.
            and all(e.holds(node if e.key == "metadata.name" else None) for e in fields)
        )


class _Required(Model):
    node_selector_terms: tuple[_Term, ...] | None = None


class _NodeAffinity(Model):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class _Affinity(Model):
    node_affinity: _NodeAffinity | None = None


class _Toleration(Model):
    key: _Text | None = None
    operator: _Text | None = None
    value: _Text | None = None
    effect: _Text | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Return whether it tolerates a taint (`ToleratesTaint` in k8s.io/api/core/v1)."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        match self.operator or "Equal":
            case "Equal":
                return (self.value or "") == (taint.value or "")
            case "Gt" | "Lt":  # behind a feature gate since Kubernetes 1.35
                above = self.operator == "Gt"
                return _is_ordered(self.value, (taint.value or "",), above=above)
            case _:
                return True


class PlacementSpec(Model):
    """The fields of a Pod's spec that restrict its nodes."""

    node_selector: dict[_Text, _Text] | None = None
    affinity: _Affinity | None = None
    tolerations: tuple[_Toleration, ...] | None = None

    @property
    def required(self) -> _Required | None:
        """The required node affinity."""
        node_affinity = self.affinity.node_affinity if self.affinity else None
        if node_affinity is None:
            return None
        return node_affinity.required_during_scheduling_ignored_during_execution

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        terms = (self.required.node_selector_terms or ()) if self.required else ()
        count = len(self.node_selector or {}) + len(self.tolerations or ())
        count += sum(len(t.match_expressions or ()) + len(t.match_fields or ()) for t in terms)
        if count + len(terms) > _MOST_EXPRESSIONS:
            raise ValueError(
                "nodeSelector, affinity and tolerations have too many parts: "
                f"write at most {_MOST_EXPRESSIONS} in all"
            )
        return self


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The rules of a Pod for its nodes."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[_Term, ...] | None = None
    """Terms of the affinity, of which at least one must hold. None without required affinity."""
    tolerations: tuple[_Toleration, ...] = ()

    @classmethod
    def read(cls, spec: Mapping[str, Any]) -> Self:
        """Read the rules from the spec of a Pod.

        Raises
        ------
        pydantic.ValidationError
            If the rules are malformed. `partita.models.errors.describe` formats the message.
        """
        read = PlacementSpec.model_validate(spec)
        required = read.required
        return cls(
            tuple((read.node_selector or {}).items()),
            (required.node_selector_terms or ()) if required is not None else None,
            read.tolerations or (),
        )

    def tolerating(self, more: Iterable[Toleration]) -> "NodeRules":
        """Return the rules with additional tolerations."""
        added = tuple(_Toleration.model_validate(t.model_dump()) for t in more)
        return NodeRules(self.selector, self.terms, (*self.tolerations, *added))

    def unmet(self, node: str, labels: Mapping[str, str]) -> str:
        """Describe a rule on labels or names that a node does not meet.

        Returns
        -------
        str
            A predicate of "the nodes", such as `lack the label zone=a
            (template.spec.nodeSelector)`. It is empty if the node meets all rules.
        """
        for key, value in self.selector:
            if labels.get(key) != value:
                return f"lack the label {key}={value} (template.spec.nodeSelector)"
        if self.terms is not None and not any(t.holds(node, labels) for t in self.terms):
            return "do not match template.spec.affinity.nodeAffinity"
        return ""

    def untolerated(self, taints: Iterable[Taint]) -> list[Taint]:
        """Return the taints that exclude the Pod from the node."""
        return [
            taint
            for taint in taints
            if taint.repels and not any(t.tolerates(taint) for t in self.tolerations)
        ]
