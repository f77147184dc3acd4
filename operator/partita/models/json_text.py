"""A parser for JSON of the API server with any nesting depth.

A job's template may contain fields that its CRD does not describe. The API server accepts up to
10,000 levels of nesting in them (`maxNestingDepth` of Go's encoding/json). Python's parsers fail at
about 1,000 levels, so one such job would prevent the parsing of a whole list. So levels deeper
than in any Pod are removed, and only a job whose template was cut is rejected.
"""

import json
import re
from typing import Any, Final

import orjson

__all__ = ["CUT_OFF", "MAX_DEPTH", "parse"]

MAX_DEPTH: Final = 100
"""Number of levels kept of a text that is nested too deeply to parse. A Pod has about 15; the limit
is an assumption."""
CUT_OFF: Final = "partita.dev: nested too deeply"
"""Text that replaces the removed levels."""

_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]')


def parse(text: bytes | str) -> Any:
    """Parse JSON; if it is nested too deeply, `CUT_OFF` replaces levels below `MAX_DEPTH`.

    Raises
    ------
    json.JSONDecodeError
        If the text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        cut = _cut(text.encode() if isinstance(text, str) else text)
        if not cut:
            raise
        return orjson.loads(cut)


def _cut(text: bytes) -> bytes:
    """Return the text without levels that are too deep, or empty bytes if it has none."""
    kept, start, depth = bytearray(), 0, 0
    for token in _TOKENS.finditer(text):
        match text[token.start()]:
            case 0x7B | 0x5B:  # { and [
                depth += 1
                if depth == MAX_DEPTH + 1:
                    kept += text[start : token.start()] + json.dumps(CUT_OFF).encode()
            case 0x7D | 0x5D:  # } and ]
                if depth == MAX_DEPTH + 1:
                    start = token.end()
                depth -= 1
            case _:
                pass
    return bytes(kept + text[start:]) if kept else b""
