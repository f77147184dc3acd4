"""What `make lint` finds in a test that would fail on a busy machine."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

CHECKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "flaky.py"))
flaky = CHECKS["flaky"]
AT_ONCE, MEASURES, PORTS, REPLACES, SHORT, SIGNALS, SLEEPS = map(CHECKS.get, CHECKS["__all__"][:-1])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('monkeypatch.setattr(module, "PAUSE", 0.1)', REPLACES),
        ('monkeypatch.setattr("package.module._PAUSE", 0.1)', REPLACES),
        ("module.PAUSE = 0.1", REPLACES),
        ("os.kill(os.getpid(), signal.SIGTERM)", SIGNALS),
        ("signal.raise_signal(signal.SIGINT)", SIGNALS),
        ("def served(unused_tcp_port): ...", PORTS),
        ("await asyncio.sleep(0.5)", SLEEPS),
        ("assert page.url.endswith('#/jobs')", AT_ONCE),
        ("asyncio.timeout(30)", SHORT),
        ("assert event.wait(10)", SHORT),
        ("process.communicate(timeout=10)", SHORT),
        ("START_SECONDS = 30", SHORT),
        ("DEADLINE = 45", SHORT),
        ("assert time.monotonic() - began < 2", MEASURES),
        ("took = time.perf_counter() - began\n    assert 1 < took", MEASURES),
    ],
)
def test_what_depends_on_the_machine_is_found(line: str, problem: str) -> None:
    assert [found for _, found in flaky(f"async def test():\n    {line}\n")] == [problem]


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr(module, "pause", 0.1)',
        'monkeypatch.setenv("PAUSE", "1")',
        "os.kill(child.pid, signal.SIGTERM)",
        "await asyncio.sleep(0)",
        "asyncio.timeout(TIMEOUT)",
        "asyncio.timeout(0.05)  # expires on purpose",
        "urlopen(url, timeout=1)",
        "took = time.monotonic() - began",
    ],
)
def test_what_does_not_is_left_alone(line: str) -> None:
    assert not list(flaky(f"async def test():\n    {line}\n"))


def test_programs_that_measure_may_sleep() -> None:
    assert not list(flaky("time.sleep(1)", waits=False))
