"""MPS starts and stops, and what it answers is what the agent can read."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from acceptance.bench import Bench
from acceptance.children import alive
from acceptance.mps import SERVER
from acceptance.requirements import needs_driver, needs_mps
from acceptance.results import CannotRunError, Check, Findings
from partita.agent.errors import MPSError, MPSGarbledError, MPSGoneError
from partita.agent.mps.control import MPSControl, ServerState
from partita.agent.mps.namespaces import daemon_configuration

__all__ = ["CONFIGURATION", "LIFECYCLE", "STATUS"]

_NOBODY = 1
"""A PID that is no MPS server's."""


def _lifecycle(bench: Bench, findings: Findings) -> None:
    try:
        with bench.daemon() as daemon:
            server = daemon.server
            findings.figures["seconds until the server is ACTIVE"] = round(daemon.started_in, 2)
            made = sorted(path.name for path in daemon.pipes.iterdir())
            findings.figures["in the pipe directory"] = made
            began = time.monotonic()
            went = daemon.stop()
            took = round(time.monotonic() - began, 2)
            findings.figures["seconds until all is over after quit"] = took
    except CannotRunError as error:
        # Of this check it is the result; of all others, why they cannot be run.
        findings.failures.append(str(error))
        return
    findings.expect(went, "quit was not enough: the daemon or its server had to be killed")
    findings.expect(not alive(server, SERVER), f"the server, PID {server}, lives on")
    left = sorted(p.name for p in daemon.pipes.iterdir())
    findings.figures["left in the pipe directory"] = left
    try:
        daemon.ask(lambda control: control.servers())
        findings.failures.append("a daemon still answers in its directory")
    except MPSGoneError as gone:
        findings.figures["a command without a daemon is answered"] = str(gone)
    except MPSError as error:
        findings.failures.append(f"that there is no daemon was not understood: {error}")


def _configuration(bench: Bench, findings: Findings) -> None:
    file = bench.new_file()
    file.write_text(daemon_configuration(bench.identity.uuid, slots=2))
    try:
        with bench.daemon(3, "-a", str(file)) as daemon:
            findings.figures["status of the server"] = daemon.state()
    except CannotRunError as error:
        findings.failures.append(str(error))


def _raw(command: str) -> Callable[[MPSControl], Awaitable[str]]:
    return lambda control: control.command(command)


def _status(bench: Bench, findings: Findings) -> None:
    rows: list[tuple[str, str, str]] = []
    with bench.daemon() as daemon, bench.start(daemon.client_pipes) as client:
        began = time.monotonic()
        client.ready()
        took = round(time.monotonic() - began, 2)
        server = daemon.server

        def read(command: str, question: Callable[[MPSControl], Awaitable[Any]]) -> Any:
            raw = daemon.ask(_raw(command))
            try:
                value: Any = daemon.ask(question)
            except MPSError as error:
                value = error
            rows.append((command.replace("\n", " + "), repr(raw), _shown(value)))
            return value

        servers = read("get_server_list", lambda control: control.servers())
        state = read(f"get_server_status {server}", lambda control: control.state(server))
        clients = read(f"get_client_list {server}", lambda control: control.clients(server))
        both = read(
            f"get_server_status {server}\nget_client_list {server}",
            lambda control: control.status(server),
        )
        rows.append(("lspart", repr(daemon.ask(_raw("lspart"))), ""))
        wrong = read(f"get_server_status {_NOBODY}", lambda control: control.state(_NOBODY))
        client.close()
        deadline = time.monotonic() + 10
        while (after := daemon.ask(lambda c: c.clients(server))) and time.monotonic() < deadline:
            time.sleep(0.1)
        rows.append(("get_client_list, the client gone", "", _shown(after)))
        with bench.start(daemon.client_pipes) as orphan:
            orphan.ready()
            os.kill(server, signal.SIGKILL)
            said = orphan.ask("run", seconds=30)["ended"]
    findings.table("Answers of the control daemon", ("command", "answered", "read as"), rows)
    findings.expect(servers == [server], "get_server_list was not read as the one server")
    findings.expect(state is ServerState.ACTIVE, "a server with a client was not read as ACTIVE")
    findings.expect(
        isinstance(clients, list) and len(clients) == 1, "get_client_list was not the one client"
    )
    findings.expect(both == (state, clients), "two commands at once were not read as one by one")
    findings.expect(
        isinstance(wrong, MPSGarbledError), "a server that is none was read as one with a state"
    )
    findings.expect(after == [], "a client that has ended is still listed after 10 s")
    findings.expect("CUDA_ERROR_MPS_" in said, f"no error of MPS without a server: {said}")
    findings.figures["seconds until a client has its context"] = took
    findings.figures["the client's PID is listed as the system has it"] = clients == [client.pid]


def _shown(value: object) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else str(value)


LIFECYCLE = Check(
    name="mps-start-stop",
    done="An MPS control daemon with a server is started in directories of its own, as Partita's "
    "agent does it. Then it is asked to quit.",
    expected="The server becomes ACTIVE within 60 s. After quit, neither the daemon nor the server "
    "is left, and the agent reports that none is running.",
    run=_lifecycle,
    requires=(needs_mps,),
)
CONFIGURATION = Check(
    name="configuration-v3",
    done="A daemon of protocol 3 is started with the configuration that Partita's agent writes.",
    expected="It accepts it, with 1 MiB and 1 % as the limits of a namespace.",
    run=_configuration,
    requires=(needs_driver(615, "MPS protocol 3"), needs_mps),
)
STATUS = Check(
    name="mps-status",
    done="The commands of the agent are sent to the control daemon with one client connected, and "
    "`partita.agent.mps.control` reads the answers.",
    expected="One server in the state ACTIVE with that one client, read from one command or from "
    "two at the same time. Drivers before r550 tell no state: that they list clients by `ps` once "
    "the server is ready is an assumption. The PID of a process that is not a server results in an "
    "error and not in a state. A client that ended is not listed. The report says what lspart "
    "answers without static SM partitions: that it contains `disabled` is an assumption. A client "
    "whose server is killed gets an error of MPS; that a client takes as long to start as the "
    "server (mps-start-stop) is an assumption.",
    run=_status,
    requires=(needs_mps,),
)
