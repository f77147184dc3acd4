"""Finds what makes a test depend on the speed of the machine or on the test before it."""

import ast
import re
from collections.abc import Iterator

__all__ = ["TIMEOUT", "flaky"]

TIMEOUT = 90.0
"""Seconds: `support.polling.TIMEOUT`, the only limit of a wait."""

_CONSTANT = re.compile(r"(?:.*\.)?_?[A-Z][A-Z0-9_]+")
_LIMIT = re.compile(r"_?(?:[A-Z]+_)*(?:DEADLINE|TIMEOUT|(?:DEADLINE|START|WAIT)_SECONDS)")
_CLOCKS = {"monotonic", "perf_counter", "time"}
_WAITS = {"holds_within", "join", "poll", "timeout", "until", "wait"}
"""Functions with a limit as a positional argument."""
_TRIES = {"create_connection", "urlopen"}
"""Functions whose limit is that of one try of several."""


def flaky(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each finding, and what to write instead."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                yield from ((node.lineno, problem) for problem in _of_call(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _timed(node)
            case ast.Assign(targets=[ast.Attribute(ast.Name(owner), name)]) if owner not in {
                "self",
                "cls",
            } and _CONSTANT.fullmatch(name):
                yield node.lineno, _REPLACED
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _LIMIT.fullmatch(
                name
            ) and _is_short(value):
                yield node.lineno, _SHORT


_REPLACED = "replaces a constant: pass it in, a time as a field of Times"
_SHORT = f"waits for less than {TIMEOUT:g} s: use support.polling.TIMEOUT"
_SLEEPS = "sleeps: wait for a state with support.polling.until"
_SIGNALS = "signals its own process: set the stop event that the code under test waits for"
_MEASURES = "asserts how long something took: count the work, or wait for a state"


def _of_call(call: ast.Call) -> Iterator[str]:
    name = _name(call.func)
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "setattr" and texts and _CONSTANT.fullmatch(texts[0]):
        yield _REPLACED
    if name == "sleep" and call.args and _number(call.args[0]):
        yield _SLEEPS
    if name == "raise_signal" or (
        name == "kill" and call.args and ast.unparse(call.args[0]) == "os.getpid()"
    ):
        yield _SIGNALS
    limits = [k.value for k in call.keywords if k.arg == "timeout" and name not in _TRIES]
    if name in _WAITS and not _is_marker(call.func):
        limits += call.args
    if any(_is_short(limit) for limit in limits):
        yield _SHORT


def _timed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    """Yield assertions on a difference of two times of a clock."""
    took = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_difference(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and any(
            _is_difference(part) or (isinstance(part, ast.Name) and part.id in took)
            for part in ast.walk(node.test)
        ):
            yield node.lineno, _MEASURES


def _is_difference(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Call)
        and _name(node.left.func) in _CLOCKS
    )


def _is_short(node: ast.AST) -> bool:
    """Return whether a literal is a limit that a busy machine may need; less expires on purpose."""
    return 1 <= _number(node) < TIMEOUT


def _number(node: ast.AST) -> float:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _name(function: ast.AST) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _is_marker(function: ast.AST) -> bool:
    return "mark" in ast.unparse(function).split(".")
