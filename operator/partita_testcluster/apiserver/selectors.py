"""Label and field selectors, which are parsed once and then applied to a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from partita_testcluster.apiserver.errors import bad_request

__all__ = ["Selector", "parse_field_selector", "parse_label_selector"]

Selector = Callable[[Mapping[str, str]], bool]

_LABEL = re.compile(r"""
    \s* (?P<key>[A-Za-z0-9](?:[-\w./]*[A-Za-z0-9])?)
    (?: \s* (?P<op>==?|!=) \s* (?P<value>[-\w.]*)
      | \s+ (?P<set>in|notin) \s* \( (?P<values>[^()]*) \) )?
    \s* (?:,|$)
    | \s* ! \s* (?P<none>[-\w./]+) \s* (?:,|$)""", re.VERBOSE | re.ASCII)  # fmt: skip
_FIELD = re.compile(r"(?P<key>[^=!]+?)(?P<op>==|=|!=)(?P<value>.*)")


def parse_label_selector(text: str) -> Selector | None:
    """Return the predicate on labels that `text` defines, or `None` if it selects everything.

    Raises
    ------
    APIError
        400 if `text` is not a label selector.
    """
    tests: list[Selector] = []
    at = 0
    while at < len(text):
        if (match := _LABEL.match(text, at)) is None:
            raise bad_request(f"unable to parse requirement: {text[at:]!r} in label selector")
        tests.append(_label_test(match))
        at = match.end()
    return _all(tests)


def _all(tests: list[Selector]) -> Selector | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda labels: all(test(labels) for test in tests)


def _label_test(match: re.Match[str]) -> Selector:
    key, op, value = match["key"] or match["none"], match["op"] or match["set"], match["value"]
    if op is None:
        wanted = match["none"] is None
        return lambda labels: (key in labels) is wanted
    values = {value} if match["op"] else {v.strip() for v in match["values"].split(",")}
    wanted = op not in ("!=", "notin")
    return lambda labels: (labels.get(key) in values) is wanted


def parse_field_selector(text: str, known: frozenset[str], kind: str) -> Selector | None:
    """Return the predicate on selectable fields that `text` defines, or `None` if it is empty.

    Parameters
    ----------
    text
        A field selector such as ``spec.nodeName=n1,status.phase!=Failed``.
    known
        The selectable fields of this kind.
    kind
        Name of the kind, for the message on an unknown field.

    Raises
    ------
    APIError
        400 if `text` is not a field selector or contains a field that is not selectable.
    """
    tests: list[Selector] = []
    for term in filter(None, text.split(",")):
        if (match := _FIELD.fullmatch(term)) is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {term!r}")
        if match["key"] not in known:
            raise bad_request(
                f"field label not supported: {match['key']} (a {kind} can be selected by: "
                f"{', '.join(sorted(known))})"
            )
        tests.append(_field_test(match["key"], match["op"], match["value"]))
    return _all(tests)


def _field_test(key: str, op: str, value: str) -> Selector:
    wanted = op != "!="
    return lambda fields: (fields.get(key, "") == value) is wanted
