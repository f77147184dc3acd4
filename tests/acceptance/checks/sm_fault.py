"""Which clients a fault ends, with and without static SM partitions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from acceptance.bench import Bench
from acceptance.checks.kills import canary
from acceptance.kernels import FAULTS
from acceptance.mps import Daemon
from acceptance.requirements import needs_ampere, needs_driver, needs_mps
from acceptance.results import CannotRunError, Check, Findings
from partita.agent.mps.logs import MPSLog, mps_logs

__all__ = ["SM_FAULTS"]


_STATES = {"active", "ready", "initializing", "fault"}
"""What the agent can read, of both protocols, in lower case."""


def _partitions(daemon: Daemon) -> list[dict[str, str]]:
    """Make two partitions; return the variables of a client of each."""
    made = [daemon.partition(name) for name in ("one", "two")]
    if not all("/" in one for one in made):
        raise CannotRunError(f"no partitions were made: {made}")
    return [{"CUDA_MPS_SM_PARTITION": one} for one in made]


def _faults(protocol: int, bench: Bench, findings: Findings, *, partitions: bool) -> None:
    rows = []
    for kind in FAULTS:
        with bench.daemon(protocol, *(["-S"] if partitions and protocol == 2 else [])) as daemon:
            variables = _partitions(daemon) if partitions else [{}, {}]
            if partitions:
                refused, _ = canary(bench, daemon)
                findings.expect(bool(refused), "a client without a partition is accepted")
            with (
                bench.start(daemon.client_pipes, variables=variables[0]) as neighbour,
                bench.start(daemon.client_pipes, variables=variables[1]) as faulty,
            ):
                neighbour.ready()
                sms = faulty.ready().facts["sms"]
                logs = [MPSLog(daemon.output), *mps_logs(daemon.logs)]
                neighbour.ask("run", seconds=0.2)
                neighbour.send("run", seconds=bench.neighbour_seconds)
                faulty.send("fault", kind=kind)
                own = faulty.ended()
                other = neighbour.ended() or neighbour.ask("run", seconds=0.2)["ended"]
                state = daemon.state()
                logged = [line for log in logs for line in log.faults()]
        rows.append((kind, sms, own, other or "computed on", "; ".join(logged), state))
        findings.expect(bool(own), f"{kind}: the program with the fault did not notice it")
        findings.expect(state.lower() in _STATES, f"{kind}: the server is {state!r}")
        if other:
            findings.expect(bool(logged), f"{kind}: MPS printed no line that is read as fatal")
        if partitions and kind != "address":
            findings.expect(not other, f"{kind}: the fault reached the other partition: {other}")
    findings.table(
        "A fault of one of two clients",
        ("fault", "its SMs", "the client", "its neighbour", "read as fatal", "state"),
        rows,
    )


_V2 = (
    Check(
        name="sm-fault",
        done="One of two MPS clients causes a fault: a trap, a misaligned access, an access to an "
        "address that is not mapped. A daemon of its own for each.",
        expected="The client gets an error. The report says what its neighbour gets: NVIDIA "
        "documents that the fault ends every client on the GPU. If it does, MPS prints a line that "
        "`partita.agent.mps.logs` reads as fatal: that it has the word is an assumption. The agent "
        "knows the state of the server.",
        run=partial(_faults, 2, partitions=False),
        requires=(needs_mps,),
    ),
    Check(
        name="sm-fault-static-partitions",
        done="The same with the two clients in static SM partitions of their own.",
        expected="A trap and a misaligned access end only their own client, and a client that names "
        "no partition is refused. The report says what an access to an address that is not mapped "
        "does: an SM does not detect it.",
        run=partial(_faults, 2, partitions=True),
        requires=(needs_ampere, needs_driver(610, "isolation between SM partitions"), needs_mps),
    ),
)
_V3 = (
    replace(
        check,
        name=f"{check.name}-v3",
        done=f"{check.done} With protocol 3.",
        run=partial(_faults, 3, partitions=check is not _V2[0]),
        requires=(needs_driver(615, "MPS protocol 3"), *check.requires),
    )
    for check in _V2
)
SM_FAULTS = (*_V2, *_V3)
