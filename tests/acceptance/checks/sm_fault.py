"""Which clients a fault ends, with and without static SM partitions."""

from __future__ import annotations

from functools import partial

from acceptance.bench import Bench
from acceptance.kernels import FAULTS
from acceptance.mps import Daemon
from acceptance.requirements import needs_ampere, needs_driver, needs_mps
from acceptance.results import CannotRunError, Check, Findings
from partita.agent.mps.logs import MPSLog

__all__ = ["SM_FAULTS"]

_CHUNKS = 1
"""Chunks of a partition: the smallest one."""


def _partitions(bench: Bench, daemon: Daemon) -> list[dict[str, str]]:
    """Make two partitions; return the variables of a client of each.

    `sm_partition add`: https://docs.nvidia.com/deploy/mps/common-tasks.html, "Using Static SM
    Partitioning".
    """
    command = f"sm_partition add {bench.identity.uuid} {_CHUNKS}"
    made = []
    for _ in range(2):
        answer = daemon.ask(lambda control: control.command(command)).strip()
        if "/" not in answer:
            raise CannotRunError(f"no partition was made: {answer or 'no answer'}")
        made.append({"CUDA_MPS_SM_PARTITION": answer.splitlines()[-1].strip()})
    return made


def _faults(bench: Bench, findings: Findings, *, partitions: bool) -> None:
    rows = []
    for kind in FAULTS:
        with bench.daemon(2, *(["-S"] if partitions else [])) as daemon:
            variables = _partitions(bench, daemon) if partitions else [{}, {}]
            with (
                bench.start(daemon.client_pipes, variables=variables[0]) as neighbour,
                bench.start(daemon.client_pipes, variables=variables[1]) as faulty,
            ):
                neighbour.ready()
                sms = faulty.ready().facts["sms"]
                log = MPSLog(daemon.output)
                neighbour.ask("run", seconds=0.2)
                neighbour.send("run", seconds=bench.neighbour_seconds)
                faulty.send("fault", kind=kind)
                own, other = faulty.ended(), neighbour.ended()
                logged = log.faults()
        rows.append((kind, sms, own, other or "computed on", "; ".join(logged)))
        findings.expect(bool(own), f"{kind}: the program with the fault did not notice it")
        if other:
            findings.expect(bool(logged), f"{kind}: MPS printed no line that is read as fatal")
        if partitions and kind != "address":
            findings.expect(not other, f"{kind}: the fault reached the other partition: {other}")
    findings.table(
        "A fault of one of two clients",
        ("fault", "its SMs", "the client", "its neighbour", "read as fatal"),
        rows,
    )


SM_FAULTS = (
    Check(
        name="sm-fault",
        done="One of two MPS clients causes a fault: a trap, a misaligned access, an access to an "
        "address that is not mapped. A daemon of its own for each.",
        expected="The client gets an error. The report says what its neighbour gets: NVIDIA "
        "documents that the fault ends every client on the GPU. If it does, MPS prints a line that "
        "`partita.agent.mps.logs` reads as fatal: that it has the word is an assumption.",
        run=partial(_faults, partitions=False),
        requires=(needs_mps,),
    ),
    Check(
        name="sm-fault-static-partitions",
        done="The same with the two clients in static SM partitions of their own.",
        expected="A trap and a misaligned access end only their own client. The report says what "
        "an access to an address that is not mapped does: an SM does not detect it.",
        run=partial(_faults, partitions=True),
        requires=(needs_ampere, needs_driver(610, "isolation between SM partitions"), needs_mps),
    ),
)
