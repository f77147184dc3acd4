"""Label and field selectors: parsed once, then applied to a record's labels or fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from partita.embedded.errors import bad_request

__all__ = ["Selector", "parse_field_selector", "parse_label_selector"]

Selector = Callable[[Mapping[str, str]], bool]

_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_SET = re.compile(rf"\s*{_KEY}\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*(?:,|$)")
_EQUALITY = re.compile(rf"\s*{_KEY}\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)\s*(?:,|$)")
_EXISTS = re.compile(rf"\s*(?P<op>!?)\s*{_KEY}\s*(?:,|$)")
_FIELD = re.compile(r"(?P<key>[^=!]+?)(?P<op>==|=|!=)(?P<value>.*)")


def parse_label_selector(text: str) -> Selector | None:
    """Return the predicate on labels that `text` describes, `None` if it selects everything.

    Raises
    ------
    APIError
        400 where `text` is no label selector.
    """
    tests: list[Selector] = []
    at = 0
    while at < len(text):
        for pattern, build in ((_SET, _set), (_EQUALITY, _equality), (_EXISTS, _exists)):
            if match := pattern.match(text, at):
                tests.append(build(match))
                at = match.end()
                break
        else:
            raise bad_request(f"unable to parse requirement: {text[at:]!r} in label selector")
    return _all(tests)


def _all(tests: list[Selector]) -> Selector | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda labels: all(test(labels) for test in tests)


def _set(match: re.Match[str]) -> Selector:
    key = match["key"]
    values = frozenset(v.strip() for v in match["values"].split(","))
    if match["op"] == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: key not in labels or labels[key] not in values


def _equality(match: re.Match[str]) -> Selector:
    key, op, value = match["key"], match["op"], match["value"]
    if op == "!=":
        return lambda labels: labels.get(key) != value
    if op in "<>":
        try:
            bound = int(value)
        except ValueError:
            raise bad_request(f"for '{op}' the value must be an integer, not {value!r}") from None
        return lambda labels: _ordered(labels.get(key), bound, greater=op == ">")
    return lambda labels: labels.get(key) == value


def _ordered(value: str | None, bound: int, *, greater: bool) -> bool:
    try:
        number = int(value or "")
    except ValueError:
        return False
    return number > bound if greater else number < bound


def _exists(match: re.Match[str]) -> Selector:
    key = match["key"]
    if match["op"]:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def parse_field_selector(text: str, known: frozenset[str], kind: str) -> Selector | None:
    """Return the predicate on selectable fields that `text` describes.

    Parameters
    ----------
    text
        Such as ``spec.nodeName=n1,status.phase!=Failed``.
    known
        The fields by which this kind can be selected.
    kind
        For the message of an unknown field.

    Raises
    ------
    APIError
        400 where `text` is no field selector or names a field that cannot be selected by.
    """
    tests: list[Selector] = []
    for term in filter(None, text.split(",")):
        match = _FIELD.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {term!r}")
        key, value = match["key"], match["value"]
        if key not in known:
            raise bad_request(
                f"field label not supported: {key} (a {kind} can be selected by: "
                f"{', '.join(sorted(known))})"
            )
        tests.append(_field(key, value, negate=match["op"] == "!="))
    return _all(tests)


def _field(key: str, value: str, *, negate: bool) -> Selector:
    if negate:
        return lambda fields: fields.get(key, "") != value
    return lambda fields: fields.get(key, "") == value
