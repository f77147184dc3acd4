"""Validation rules in CEL (`x-kubernetes-validations`), compiled once.

They use Google's C++ implementation (``cel-expr-python``) with its strings library and optionals.
Of the functions that Kubernetes adds, only the comparisons of quantities are supported:
https://kubernetes.io/docs/reference/using-api/cel/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from partita.models.quantities import parse_quantity

__all__ = ["QUANTITY_MESSAGE", "CELRule", "RuleError", "activation", "compile_rule", "is_quantity"]

Activation = Any  # cel_expr_python has no types

_PARTS = frozenset({"rule", "message", "fieldPath"})

_T = cel.Type
# Prefix of a quantity in CEL: a string that no field can equal. The exact value follows it.
_MARK = "\1quantity:"
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
# Fields selected from the value itself, without the name of a function that is called.
_SELECTION = re.compile(r"(?<![.\w])(?:self|oldSelf)((?:\.[A-Za-z_]\w*)+)(?![\w(])")


QUANTITY_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
"""kube-apiserver's message on a text that is not a quantity."""


class RuleError(Exception):
    """A rule that cannot be compiled or evaluated."""


def _wrap(text: str) -> str:
    try:
        return f"{_MARK}{parse_quantity(text).normalize():f}"
    except ValueError as e:
        raise ValueError(QUANTITY_MESSAGE) from e


def is_quantity(text: str) -> bool:
    """Return whether a text is a quantity."""
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def _compare(*values: str) -> int:
    if not all(value.startswith(_MARK) for value in values):
        raise ValueError("no such overload: compare quantity(...) with quantity(...)")
    left, right = (Decimal(value[len(_MARK) :]) for value in values)
    return (left > right) - (left < right)


def _function(name: str, result: Any, impl: Any, *others: Any) -> Any:
    """Return a function on a string. With further arguments it is a method of the string."""
    overload = cel.Overload(
        f"partita_{name}", result, [_T.STRING, *others], is_member=bool(others), impl=impl
    )
    return cel.FunctionDecl(name, [overload])


@cache
def _environment() -> Any:
    return cel.NewEnv(
        variables={"self": _T.DYN, "oldSelf": _T.DYN},
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
        functions=[
            _function("quantity", _T.STRING, _wrap),
            _function("isQuantity", _T.BOOL, is_quantity),
            _function("isGreaterThan", _T.BOOL, lambda a, b: _compare(a, b) > 0, _T.STRING),
            _function("isLessThan", _T.BOOL, lambda a, b: _compare(a, b) < 0, _T.STRING),
            _function("compareTo", _T.INT, _compare, _T.STRING),
        ],
    )


@cache
def _compile(source: str) -> Any:
    try:
        return _environment().compile(source)
    except RuntimeError as e:
        raise RuleError(f"compilation failed: {e}") from e


@dataclass(frozen=True, slots=True)
class CELRule:
    """One entry of `x-kubernetes-validations`, ready to be evaluated.

    Attributes
    ----------
    selections
        Fields of the value that the rule selects, such as ``(spec, gpus)``.
    transition
        Whether the rule compares with `oldSelf`, so that it holds without an old value.
    """

    source: str
    message: str
    selections: tuple[tuple[str, ...], ...]
    field_path: tuple[str, ...]
    transition: bool
    program: Any

    def failure(self, activation: Activation) -> str | None:
        """Return why a value violates the rule, or `None` if it does not.

        Raises
        ------
        RuleError
            If the rule cannot be evaluated on this value.
        """
        result = self.program.eval(activation)
        if result.type() != _T.BOOL:
            raise RuleError(f"{result.value()} evaluating rule: {self.message or self.source}")
        if result.value():
            return None
        return self.message or f"failed rule: {self.source}"


def activation(value: Any, old: Any) -> Activation:
    """Return the variables of the rules on a value.

    Parameters
    ----------
    value
        The value to which the rules apply (`self`).
    old
        Its previous value (`oldSelf`); `Ellipsis` without one.
    """
    variables = {"self": value} if old is ... else {"self": value, "oldSelf": old}
    return _environment().Activation(variables)


def compile_rule(entry: dict[str, Any]) -> CELRule:
    """Compile one entry of `x-kubernetes-validations`.

    Raises
    ------
    RuleError
        If the rule is not valid CEL, or uses features that are not supported here.
    """
    if unknown := entry.keys() - _PARTS:
        raise RuleError(f"{', '.join(sorted(unknown))} is not supported here")
    source = entry["rule"].strip()
    bare = _STRING.sub("''", source)
    return CELRule(
        source=source,
        message=entry.get("message", "").strip(),
        selections=tuple(tuple(m[1].split(".")[1:]) for m in _SELECTION.finditer(bare)),
        field_path=tuple(p for p in entry.get("fieldPath", "").split(".") if p),
        transition="oldSelf" in bare,
        program=_compile(source),
    )
