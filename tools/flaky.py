"""Finds what makes a test depend on the speed of the machine, or on the test before it."""

import ast
import re
from collections.abc import Callable, Iterator

__all__ = ["AT_ONCE", "MEASURES", "PORTS", "REPLACES", "SHORT", "SIGNALS", "SLEEPS", "flaky"]

TIMEOUT = 90.0
"""Seconds: `support.polling.TIMEOUT`, the limit of every wait."""

REPLACES = "replaces a constant: pass it in, a time as a field of Times or AgentTimes"
SIGNALS = "signals its own process: set the stop event, or signal a child process"
PORTS = "another program may take this port: use the fixture port or new_port"
SLEEPS = "sleeps: wait for a state with support.polling.until"
AT_ONCE = "asserts a page's address at once: await expect(page).to_have_url"
SHORT = f"waits for less than {TIMEOUT:g} s: use support.polling.TIMEOUT"
MEASURES = "asserts how long something took: count the work, or wait for a state"

_CONSTANT = re.compile(r"(?:.*\.)?_?[A-Z][A-Z0-9_]+")
_LIMIT = re.compile(r"_?(?:[A-Z]+_)*(?:DEADLINE|TIMEOUT|(?:DEADLINE|START|WAIT)_SECONDS)")
_CLOCKS = {"monotonic", "perf_counter", "time"}
_WAITS = {"holds_within", "join", "poll", "timeout", "until", "wait"}
"""Functions with a limit as a positional argument."""
_TRIES = {"create_connection", "urlopen"}
"""Functions whose limit is that of one try of several."""


def flaky(source: str, *, waits: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the line of each finding, and what to write instead.

    Parameters
    ----------
    waits
        Whether to look for sleeps, limits and measured times, too.
    """
    kinds: list[tuple[Callable[[ast.AST], bool], str]] = [
        (_replaces, REPLACES),
        (_signals, SIGNALS),
        (_is_free_port, PORTS),
    ]
    if waits:
        kinds += [(_sleeps, SLEEPS), (_is_short_wait, SHORT), (_asserts_address, AT_ONCE)]
    for node in ast.walk(ast.parse(source)):
        yield from ((node.lineno, problem) for found, problem in kinds if found(node))  # type: ignore[attr-defined]
        if waits and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from ((line, MEASURES) for line in _measured(node))


def _replaces(node: ast.AST) -> bool:
    match node:
        case ast.Call(args=arguments) if _name(node.func) == "setattr":
            texts = [a.value for a in arguments if isinstance(a, ast.Constant)]
            return bool(texts) and bool(_CONSTANT.fullmatch(str(texts[0])))
        case ast.Assign(targets=[ast.Attribute(ast.Name(owner), name)]):
            return owner not in {"self", "cls"} and bool(_CONSTANT.fullmatch(name))
        case _:
            return False


def _signals(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (
        _name(node.func) == "raise_signal"
        or (_name(node.func) == "kill" and ast.unparse(node).startswith("os.kill(os.getpid(),"))
    )


def _is_free_port(node: ast.AST) -> bool:
    return isinstance(node, ast.arg) and node.arg == "unused_tcp_port"


def _sleeps(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and _name(node.func) == "sleep"
        and bool(node.args)
        and _number(node.args[0]) > 0
    )


def _asserts_address(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) and "page.url" in ast.unparse(node.test)


def _is_short_wait(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=function, args=limits, keywords=keywords):
            name = _name(function)
            named = [k.value for k in keywords if k.arg == "timeout" and name not in _TRIES]
            marks = ".mark." in ast.unparse(function)
            return any(map(_is_short, [*named, *(limits if name in _WAITS and not marks else ())]))
        case ast.Assign(targets=[ast.Name(name)], value=value):
            return bool(_LIMIT.fullmatch(name)) and _is_short(value)
        case _:
            return False


def _measured(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Yield the lines of assertions on a difference of two times of a clock."""
    took = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_duration(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and any(
            _is_duration(part) or (isinstance(part, ast.Name) and part.id in took)
            for part in ast.walk(node.test)
        ):
            yield node.lineno


def _is_duration(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(left=ast.Call(func=function), op=ast.Sub()):
            return _name(function) in _CLOCKS
        case _:
            return False


def _is_short(node: ast.AST) -> bool:
    """Return whether a literal is a limit that a busy machine needs; less expires on purpose."""
    return 1 <= _number(node) < TIMEOUT


def _number(node: ast.AST) -> float:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _name(function: ast.AST) -> str:
    name: str = getattr(function, "attr", getattr(function, "id", ""))
    return name
