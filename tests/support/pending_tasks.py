"""A pytest plug-in: a test that runs into its time limit shows what its asyncio tasks wait for.

pytest-timeout shows the stacks of threads, of which that of an event loop says only that it waits.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Generator, Iterator
from typing import Any

import pytest

__all__ = ["pending_tasks"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the tasks to the report of a test that has failed by its time limit."""
    report = yield
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        report.sections.append(("asyncio tasks that wait", "\n".join(pending_tasks())))
    return report


def pending_tasks() -> list[str]:
    """Return a line for each task of any event loop that has not ended: where it waits, by file."""
    tasks = [one for one in gc.get_objects() if isinstance(one, asyncio.Task) and not one.done()]
    return [f"{task.get_name()}: {' > '.join(_waits_in(task.get_coro()))}" for task in tasks]


def _waits_in(awaited: Any) -> Iterator[str]:
    """Name the function of a coroutine, and then what each awaits."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            code = frame.f_code
            folder_and_file = "/".join(code.co_filename.split("/")[-2:])
            yield f"{folder_and_file}:{frame.f_lineno} {code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
