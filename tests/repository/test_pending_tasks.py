"""A test that hangs says where."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HANGS = """
import asyncio

import pytest

pytest_plugins = ["support.pending_tasks"]


async def inner():
    await asyncio.Event().wait()


@pytest.mark.asyncio
@pytest.mark.timeout(2, func_only=True)
async def test_hangs():
    await asyncio.create_task(inner(), name="hanging")
"""


def test_a_test_that_runs_into_its_limit_shows_what_its_tasks_wait_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makepyfile(HANGS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*asyncio tasks that wait*", "hanging: *inner > *locks.py:* wait"])
