"""Parses JSON of the API server of any depth.

A job's template may have fields that its CRD does not describe, nested as deeply as the API server
accepts: 10,000 levels (`maxNestingDepth` of Go's encoding/json). Python's parsers fail at about
1,000, and then no object of the same list could be parsed. So levels deeper than any Pod are cut
off, and only a job whose template was cut is rejected.
"""

import json
import re
from typing import Any, Final

import orjson

__all__ = ["CUT_OFF", "MAX_DEPTH", "parse"]

MAX_DEPTH: Final = 100
"""Levels that are kept of a text with too many to parse. A Pod has about 15; this
much is an assumption."""
CUT_OFF: Final = "partita.dev: nested too deeply"
"""Replaces what was cut off."""

_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]')


def parse(text: bytes | str) -> Any:
    """Parse JSON; if it is nested too deeply, `CUT_OFF` replaces levels below `MAX_DEPTH`.

    Raises
    ------
    json.JSONDecodeError
        The text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        cut = _cut(text.encode() if isinstance(text, str) else text)
        if not cut:
            raise
        return orjson.loads(cut)


def _cut(text: bytes) -> bytes:
    """Return the text without levels that are too deep; empty if there are none."""
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
