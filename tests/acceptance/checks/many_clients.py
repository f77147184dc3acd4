"""How many clients one GPU has, and what NVML says of each."""

from __future__ import annotations

from contextlib import ExitStack

from acceptance.bench import Bench
from acceptance.clients import ClientError
from acceptance.requirements import needs_mps
from acceptance.results import Check, Findings
from partita.agent.mps.control import max_clients

__all__ = ["CLIENT_LIMIT", "COUNTING", "UTILIZATION"]

_START = 30.0
"""Seconds for one client to have its context. An assumption."""
_SECONDS = 4.0
"""Seconds that the clients compute."""
_DRIVERS_OWN = 256
"""MiB of no process that Partita takes for the driver's own (`partita.agent.mps.unlisted_clients`)."""


def _limit(bench: Bench, findings: Findings) -> None:
    expected = max_clients(bench.cuda)
    refused, count = "", 0
    with bench.daemon() as daemon, ExitStack() as stack:
        while not refused and count <= expected:
            client = stack.enter_context(bench.start(daemon.client_pipes))
            try:
                client.ready(_START)
                count += 1
            except ClientError as error:
                refused = str(error)
    findings.figures |= {
        "CUDA of the driver": bench.cuda,
        "clients at the same time": count,
        "clients that Partita counts on": expected,
        "the refusal of one more": refused or "none",
    }
    findings.expect(count >= expected, f"only {count} of {expected} clients were accepted")
    findings.expect(count <= expected, f"more than {expected} clients are accepted")


def _utilization(bench: Bench, findings: Findings) -> None:
    with bench.daemon() as daemon, ExitStack() as stack:
        busy, light = (stack.enter_context(bench.start(daemon.client_pipes)) for _ in range(2))
        sms = busy.ready().facts["sms"]
        light.ready()
        busy.send("run", seconds=_SECONDS)
        light.send("run", seconds=_SECONDS, blocks=max(1, sms // 8))
        for client in (busy, light):
            client.receive()
        read = bench.gpu.process_utilization(0)
        named = bench.gpu.processes()
    found = {} if read is None else read[0]
    named_clients = {busy.pid, light.pid}
    findings.table(
        "What NVML says of each client",
        ("client", "SM utilisation, percent", "memory, MiB"),
        [
            (name, found.get(pid), None if named.get(pid) is None else (named[pid] or 0) >> 20)
            for name, pid in (("all SMs", busy.pid), ("an eighth of them", light.pid))
        ]
        + [("another process", sm, None) for pid, sm in found.items() if pid not in named_clients],
    )
    findings.expect(read is not None, "this driver reports no utilisation of processes")
    findings.expect(any(found.values()), "no process has used the SMs, although two computed")


def _counting(bench: Bench, findings: Findings) -> None:
    def unattributed() -> int:
        listed = sum(memory or 0 for memory in bench.gpu.processes().values())
        return (bench.gpu.memory_used() - listed) >> 20

    with bench.daemon() as daemon:
        before = unattributed()
        command = (*bench.program, "count")
        with bench.start(daemon.client_pipes, command=command) as client:
            client.ready()
            clients, listed, more = daemon.clients(), bench.gpu.processes(), unattributed() - before
    findings.figures |= {"clients that MPS names": len(clients), "MiB more of no process": more}
    findings.expect(client.pid not in listed, "NVML lists it, although it has no context")
    findings.expect(abs(more) < _DRIVERS_OWN, f"the driver's own memory changed by {more} MiB")


CLIENT_LIMIT = Check(
    name="client-limit",
    done="MPS clients are started until one is refused.",
    expected="60 clients run at the same time from CUDA 13.1 on, 48 before, and no more.",
    run=_limit,
    requires=(needs_mps,),
)
COUNTING = Check(
    name="client-without-context",
    done="An MPS client asks for the number of GPUs (cuInit) and makes no context.",
    expected="NVML does not list it, and the memory of no process changes by less than "
    f"{_DRIVERS_OWN} MiB. The report says whether MPS names it as a client.",
    run=_counting,
    requires=(needs_mps,),
)
UTILIZATION = Check(
    name="sm-utilization",
    done="Two MPS clients compute, on all SMs and on an eighth of them; NVML is asked for the SM "
    "utilisation of each process.",
    expected="The utilisation is that of the clients, or all of it is that of the MPS server, as is "
    "reported of many GPUs: then Partita divides it among the clients.",
    run=_utilization,
    requires=(needs_mps,),
)
