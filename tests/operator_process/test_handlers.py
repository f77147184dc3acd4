"""What the handlers make of an object that kopf has read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from partita.handlers import RECURSION_LIMIT, Operator, job_changed
from partita.kube.client import JOBS
from partita.models.json_text import parse


@pytest.fixture
def raised() -> Iterator[None]:
    """Python's recursion limit as it is while kopf runs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION_LIMIT)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("levels", [1, 500, 9_000])
async def test_an_object_is_told_as_our_own_client_reads_it(raised: None, levels: int) -> None:
    text = '{"spec": ' + '{"a": ' * levels + "1" + "}" * (levels + 1)
    told = Mock()
    operator = Operator(Mock(), {}, {JOBS: told}, Mock())
    event = {"type": "DELETED", "object": json.loads(text)}
    await job_changed(event=event, memo=operator)  # type: ignore[arg-type]
    told.assert_called_once_with(parse(text), deleted=True)
