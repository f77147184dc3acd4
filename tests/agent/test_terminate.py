"""Ending one process, and what is said when that cannot be done."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import pytest

from agent.mps_container import MPSDaemonRun
from gpu.fake import FakeGPUs
from partita.agent.mps.control import MPSControl
from partita.agent.mps.terminate import terminate
from support.polling import TIMEOUT, until


def same() -> bool:
    """The PID is still that of the process that is meant."""
    return True


async def test_a_process_that_got_the_pid_of_another_is_left_alone(fake_gpus: FakeGPUs):
    program = fake_gpus.run("wait:60000")
    assert await terminate(program.pid, lambda: False, None) == ""
    assert program.poll() is None


async def test_without_mps_the_process_is_killed(fake_gpus: FakeGPUs):
    program = fake_gpus.run("wait:60000")
    assert await terminate(program.pid, same, None) == ""
    assert program.wait(TIMEOUT) == -signal.SIGKILL
    assert await terminate(program.pid, same, None) == ""  # it is gone: all is well


async def test_a_process_that_may_not_be_killed_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse(_descriptor: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    assert "capability KILL" in await terminate(1, same, None)


async def test_under_mps_a_process_is_never_killed_even_if_mps_cannot_end_it(fake_gpus: FakeGPUs):
    program = fake_gpus.run("wait:60000")
    mps = MPSControl(str(fake_gpus.folder / "pipe"), asyncio.Lock())
    assert "Cannot find MPS control daemon" in await terminate(program.pid, same, mps)
    assert program.poll() is None


async def test_under_mps_a_process_that_got_the_pid_of_a_client_is_left_alone():
    class Control:
        async def servers(self) -> list[int]:
            raise AssertionError("MPS must not be asked")

    mps = cast("MPSControl", Control())
    assert await terminate(7, lambda: False, mps) == ""


async def test_a_command_that_never_returns_is_given_up_in_time_for_the_two_seconds(
    mps: MPSDaemonRun,
):
    await mps.up()
    program = mps.run("alloc:1", "forever")
    await until(lambda: program.pid in mps.gpus.pids())
    mps.gpus.mps(terminate_hang=1)
    control = MPSControl(str(mps.pipes), asyncio.Lock(), 3.0)
    async with asyncio.timeout(TIMEOUT):
        assert "no answer to 'terminate_client" in await terminate(program.pid, same, control)
    assert program.poll() is None
    mps.gpus.mps()  # else it would not end
