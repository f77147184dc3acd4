"""What a client that reaches the pipe directory can do with it, and what it does not need."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from functools import partial

from acceptance.bench import Bench
from acceptance.mps import ROOT, Daemon
from acceptance.requirements import needs_driver, needs_mps, needs_root
from acceptance.results import Check, Findings
from partita.agent.mps.control import CONTROL

__all__ = ["NO_SHM", "QUIT"]

_USER = 1000
_DEADLINE = 10.0
"""Seconds for the daemon to answer, or to end."""


def _quit(daemon: Daemon, uid: int) -> str:
    """Ask the daemon to end, as a client would; return what was answered."""
    v3 = daemon.protocol == 3
    ran = subprocess.run(
        [CONTROL, "-q"] if v3 else [CONTROL],
        input="" if v3 else "quit\n",
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(daemon.client_pipes)},
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
        user=uid,
        group=uid,
        extra_groups=[],
    )
    return f"{ran.stdout}{ran.stderr}".strip() or f"code {ran.returncode}"


def _survives(daemon: Daemon, uid: int) -> tuple[str, bool]:
    answer = "no answer"
    with suppress(subprocess.TimeoutExpired):
        answer = _quit(daemon, uid)
    return answer, not daemon.ends_within(_DEADLINE)


def _pipe(protocol: int, bench: Bench, findings: Findings) -> None:
    rows = []
    for uid in (ROOT, _USER):
        with bench.daemon(protocol) as daemon:
            answer, survived = _survives(daemon, uid)
            rows.append((uid, answer, survived))
        if uid == _USER:
            findings.expect(survived, f"UID {_USER} can end the daemon")
    findings.table(
        "quit through the clients' pipe directory", ("UID", "answered", "survived"), rows
    )


def _no_shm(bench: Bench, findings: Findings) -> None:
    with bench.daemon() as daemon, bench.start(daemon.client_pipes, without_shm=True) as client:
        client.ready()
        ran = client.ask("run", seconds=0.5)
        pids = daemon.clients()
    findings.figures |= {"passes": ran["passes"], "clients of the server": len(pids)}
    findings.expect(not ran["ended"], f"it cannot compute: {ran['ended']}")
    findings.expect(bool(pids), "it does not use the MPS server")


def _check(protocol: int) -> Check:
    needed = (needs_mps, needs_root)
    return Check(
        name=f"quit-v{protocol}",
        done=f"A daemon of protocol {protocol}, run by root, is asked to quit through the directory "
        f"that its clients use: by root, and by UID {_USER}.",
        expected=f"UID {_USER} cannot end it. The report says whether root can.",
        run=partial(_pipe, protocol),
        requires=needed if protocol == 2 else (needs_driver(615, "MPS protocol 3"), *needed),
    )


QUIT = (_check(2), _check(3))
NO_SHM = Check(
    name="no-dev-shm",
    done="An MPS client runs with an empty, read-only /dev/shm of its own.",
    expected="It computes as a client of the server: Partita's Pods share no /dev/shm with it.",
    run=_no_shm,
    requires=(needs_mps, needs_root),
)
