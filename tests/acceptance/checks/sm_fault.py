"""Which clients a fault ends, with and without static SM partitions."""

from __future__ import annotations

from functools import partial

from acceptance.bench import Bench
from acceptance.clients import ClientError
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


def _without_partition(bench: Bench, daemon: Daemon) -> str:
    """Start a client that names no partition; return its error, empty if it has none."""
    try:
        with bench.start(daemon.client_pipes) as client:
            client.ready()
    except ClientError as error:
        return str(error)
    return ""


def _faults(protocol: int, bench: Bench, findings: Findings, *, partitions: bool) -> None:
    rows = []
    for kind in FAULTS:
        with bench.daemon(protocol, *(["-S"] if partitions and protocol == 2 else [])) as daemon:
            variables = _partitions(daemon) if partitions else [{}, {}]
            if partitions:
                outside = _without_partition(bench, daemon)
                findings.expect(bool(outside), "a client without a partition is accepted")
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
                own, other = faulty.ended(), neighbour.ended()
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


def _check(protocol: int, *, partitions: bool) -> Check:
    version = f", with protocol {protocol}" if protocol == 3 else ""
    driver = needs_driver(615, "MPS protocol 3")
    if protocol == 2:
        driver = needs_driver(610, "isolation between SM partitions")
    needed = (needs_ampere, driver) if partitions else (driver,) if protocol == 3 else ()
    return Check(
        name=f"sm-fault{'-static-partitions' if partitions else ''}"
        f"{'-v3' if protocol == 3 else ''}",
        done=f"The same with the two clients in static SM partitions of their own{version}."
        if partitions
        else "One of two MPS clients causes a fault: a trap, a misaligned access, an access to an "
        f"address that is not mapped. A daemon of its own for each{version}.",
        expected="A trap and a misaligned access end only their own client, and a client that names "
        "no partition is refused. The report says what an access to an address that is not mapped "
        "does: an SM does not detect it."
        if partitions
        else "The client gets an error. The report says what its neighbour gets: NVIDIA documents "
        "that the fault ends every client on the GPU. If it does, MPS prints a line that "
        "`partita.agent.mps.logs` reads as fatal: that it has the word is an assumption. The agent "
        "can read the status of a server of protocol 3.",
        run=partial(_faults, protocol, partitions=partitions),
        requires=(*needed, needs_mps),
    )


SM_FAULTS = tuple(_check(protocol, partitions=p) for protocol in (2, 3) for p in (False, True))
