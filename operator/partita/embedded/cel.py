"""Validation rules in CEL (`x-kubernetes-validations`), compiled once.

The language is Google's C++ implementation (``cel-expr-python``); the functions Kubernetes
adds to it are limited to its strings library, optionals and quantities:
https://kubernetes.io/docs/reference/using-api/cel/. Cost limits are not enforced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

__all__ = ["Rule", "RuleError", "activation", "compile_rule", "parse_quantity"]

Activation = Any  # cel_expr_python has no types

_T = cel.Type
# Suffixes of a quantity; Kubernetes API reference, "Quantity".
_SUFFIXES = {
    "": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
# A quantity travels through CEL as a string no field can equal, its exact value behind the mark.
_MARK = "\1quantity:"
# Names that the API server wants escaped in a rule (`self.__namespace__`), for they are CEL's own.
_RESERVED = (
    "as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|var|"
    "void|while"
)
_ESCAPED = re.compile(rf"\.__({_RESERVED}|in|true|false|null)__\b")
_UNESCAPED = re.compile(rf"\.({_RESERVED})\b")
_NO_STRINGS = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
# Fields selected from the value itself; what is called at the end is a function.
_SELECTION = re.compile(r"(?<![.\w])(?:self|oldSelf)((?:\.[A-Za-z_]\w*)+)(?![\w(])")
_SYMBOL_ESCAPE = re.compile(r"__(dot|dash|slash|underscores)__")


class RuleError(Exception):
    """A rule that does not compile, or that failed while it was evaluated."""


def parse_quantity(text: str) -> Decimal:
    """Return the value of a quantity.

    Raises
    ------
    ValueError
        It is none.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, exponent, suffix = match.groups()
    return Decimal(number + exponent) if exponent else Decimal(number) * _SUFFIXES[suffix or ""]


def _wrap(value: Decimal) -> str:
    return f"{_MARK}{value.normalize():f}"


def _unwrap(value: str) -> Decimal:
    if not value.startswith(_MARK):
        raise ValueError("no such overload: compare quantity(...) with quantity(...)")
    return Decimal(value[len(_MARK) :])


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except (ValueError, InvalidOperation):
        return False
    return True


def _compare(a: str, b: str) -> int:
    left, right = _unwrap(a), _unwrap(b)
    return (left > right) - (left < right)


def _function(name: str, result: Any, impl: Any, *others: Any, member: bool = True) -> Any:
    """Return a function on a string; `member` ones are called as methods."""
    parameters = [_T.STRING, *others]
    overload = cel.Overload(f"partita_{name}", result, parameters, is_member=member, impl=impl)
    return cel.FunctionDecl(name, [overload])


def _functions() -> list[Any]:
    text = _T.STRING
    return [
        _function("quantity", text, lambda s: _wrap(parse_quantity(s)), member=False),
        _function("isQuantity", _T.BOOL, _is_quantity, member=False),
        _function("isGreaterThan", _T.BOOL, lambda a, b: _compare(a, b) > 0, text),
        _function("isLessThan", _T.BOOL, lambda a, b: _compare(a, b) < 0, text),
        _function("compareTo", _T.INT, _compare, text),
        _function("add", text, lambda a, b: _wrap(_unwrap(a) + _unwrap(b)), text),
        _function("sub", text, lambda a, b: _wrap(_unwrap(a) - _unwrap(b)), text),
        _function("sign", _T.INT, lambda a: _compare(a, f"{_MARK}0")),
        _function("isInteger", _T.BOOL, lambda a: _unwrap(a) % 1 == 0),
        _function("asInteger", _T.INT, lambda a: int(_unwrap(a))),
        _function("asApproximateFloat", _T.DOUBLE, lambda a: float(_unwrap(a))),
        _function("find", text, lambda s, p: m[0] if (m := re.search(p, s)) else "", text),
    ]


@cache
def _environment() -> Any:
    return cel.NewEnv(
        variables={"self": _T.DYN, "oldSelf": _T.DYN},
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
        functions=_functions(),
    )


@cache
def _compile(source: str) -> Any:
    bare = _NO_STRINGS.sub("''", source)
    if found := _UNESCAPED.search(bare):
        raise RuleError(f"undefined field '{found[1]}' (write __{found[1]}__ in a rule)")
    if _SYMBOL_ESCAPE.search(bare):
        raise RuleError("names with '.', '-', '/' or '__' are not supported in rules here")
    try:
        return _environment().compile(_ESCAPED.sub(r".\1", source))
    except RuntimeError as e:
        raise RuleError(f"compilation failed: {e}") from e


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`, ready to be evaluated.

    Attributes
    ----------
    selections
        The fields of the value that the rule selects, such as ``(spec, gpus)``.
    transition
        It compares with `oldSelf`, so it holds where there is no old value.
    """

    source: str
    message: str
    message_program: Any
    reason: str
    selections: tuple[tuple[str, ...], ...]
    field_path: tuple[str, ...]
    transition: bool
    program: Any

    def failure(self, activation: Activation) -> str | None:
        """Return why a value breaks the rule, `None` if it does not.

        Raises
        ------
        RuleError
            The rule could not be evaluated on this value.
        """
        result = self.program.eval(activation)
        if result.type() != _T.BOOL:
            raise RuleError(f"{result.value()} evaluating rule: {self.message or self.source}")
        if result.value():
            return None
        if self.message_program is not None:
            said = self.message_program.eval(activation)
            if said.type() == _T.STRING and (text := str(said.value()).strip()):
                return text
        return self.message or f"failed rule: {self.source}"


def activation(value: Any, old: Any) -> Activation:
    """Return the variables of the rules on a value.

    Parameters
    ----------
    value
        The value the rules stand on (`self`).
    old
        Its former value (`oldSelf`); `Ellipsis` if there was none.
    """
    variables = {"self": value} if old is ... else {"self": value, "oldSelf": old}
    return _environment().Activation(variables)


def compile_rule(entry: dict[str, Any]) -> Rule:
    """Compile one entry of `x-kubernetes-validations`.

    Raises
    ------
    RuleError
        The rule is not CEL, or needs what this implementation lacks.
    """
    if entry.get("optionalOldSelf"):
        raise RuleError("optionalOldSelf is not supported here")
    source = entry["rule"].strip()
    expression = entry.get("messageExpression")
    bare = _ESCAPED.sub(r".\1", _NO_STRINGS.sub("''", source))
    selections = (m[1].split(".")[1:] for m in _SELECTION.finditer(bare))
    return Rule(
        source=source,
        message=entry.get("message", "").strip(),
        message_program=_compile(expression) if expression else None,
        reason=entry.get("reason", "FieldValueInvalid"),
        selections=tuple(map(tuple, selections)),
        field_path=tuple(p for p in entry.get("fieldPath", "").split(".") if p),
        transition=re.search(r"\boldSelf\b", source) is not None,
        program=_compile(source),
    )
