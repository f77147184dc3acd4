"""What becomes of the other clients when one is killed while it computes."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from acceptance.bench import CANARY_WITHIN, TERMINATED_WITHIN, Bench
from acceptance.clients import Client, ClientError
from acceptance.mps import Daemon
from acceptance.requirements import needs_driver, needs_mps
from acceptance.results import Check, Findings
from partita.agent.errors import MPSError

__all__ = ["KILLS"]

_KERNEL = 20.0
"""Seconds of the kernel that runs when its program is killed: terminate is not to wait for it."""


def canary(bench: Bench, daemon: Daemon, within: float = CANARY_WITHIN) -> tuple[str, float]:
    """Start a client that allocates; return the error, empty on success, and the seconds."""
    began = time.monotonic()
    try:
        with bench.start(daemon.client_pipes) as client:
            client.ready(within)
            said = client.ask("alloc", mib=1)["said"]
    except ClientError as error:
        said = str(error)
    return said, round(time.monotonic() - began, 2)


def _kill(protocol: int, bench: Bench, findings: Findings, *, terminate: bool) -> None:
    with bench.daemon(protocol) as daemon:
        with (
            bench.start(daemon.client_pipes) as neighbour,
            bench.start(daemon.client_pipes) as victim,
        ):
            neighbour.ready()
            victim.ready()
            neighbour.ask("run", seconds=0.2)
            victim.ask("launch", seconds=_KERNEL)
            neighbour.send("run", seconds=bench.neighbour_seconds, blocks=1)
            if terminate:
                _terminate(bench, daemon, victim, findings)
            os.kill(victim.pid, signal.SIGKILL)
            ended = neighbour.ended()
        findings.figures["the neighbour's next call"] = ended or "succeeded"
        said, seconds = canary(bench, daemon, bench.canary_within)
        findings.figures["a new client"] = said or "succeeded"
        findings.figures["seconds of the new client"] = seconds
    with bench.daemon(protocol) as restarted:
        after, seconds = canary(bench, restarted)
    findings.figures["seconds of a client after a restart of MPS"] = seconds
    findings.expect(not after, f"a restart of MPS does not help: {after}")
    if terminate:
        findings.expect(not ended, f"the neighbour lost its work: {ended}")
        findings.expect(not said, f"a new client cannot use the GPU: {said}")


def _terminate(bench: Bench, daemon: Daemon, client: Client, findings: Findings) -> None:
    """Terminate a client; measure how long that takes."""
    began = time.monotonic()
    try:
        error = daemon.terminate(client.pid, bench.terminated_within)
    except MPSError as unanswered:
        error = str(unanswered)
    seconds = round(time.monotonic() - began, 2)
    findings.figures[f"seconds of terminate, protocol {daemon.protocol}"] = seconds
    findings.expect(not error, f"terminate was refused: {error}")
    findings.expect(
        seconds < bench.terminated_within,
        f"terminate takes longer than {bench.terminated_within:g} s",
    )


def _check(protocol: int, *, terminate: bool) -> Check:
    first = "terminated by the MPS control daemon and then killed" if terminate else "killed"
    then = (
        f"Terminate succeeds within {TERMINATED_WITHIN:g} s (protocol 2 answers 0, an assumption), "
        "the neighbour computes on, and a new client gets memory."
        if terminate
        else "The report says what becomes of the neighbour and of a new client: NVIDIA's driver is "
        "known to fail both before r625."
    )
    return Check(
        name=f"{'terminate-and-kill' if terminate else 'kill'}-v{protocol}",
        done=f"Two clients of an MPS daemon of protocol {protocol} compute. One is {first} "
        f"(SIGKILL) during a kernel of {_KERNEL:g} s. Then a new client allocates memory, with a "
        f"deadline of {CANARY_WITHIN:g} s; and once more after MPS was restarted.",
        expected=f"{then} After the restart a client gets memory.",
        run=partial(_kill, protocol, terminate=terminate),
        requires=(needs_mps,)
        if protocol == 2
        else (needs_driver(615, "MPS protocol 3"), needs_mps),
    )


KILLS = tuple(_check(protocol, terminate=t) for protocol in (2, 3) for t in (False, True))
