"""What the agents report that concerns a job."""

from typing import Any

import pytest

from partita.models import GPUServer
from partita.scheduling.agent_reports import fault_of, max_clients, report_of, wrong_limit_of
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import Reason, WaitingReason
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve
from support.builders import GIB, a_job, a_partition, a_server, allocation, at


@pytest.mark.parametrize(("told", "limit"), [(60, 59), (48, 47), (None, 47)])
def test_one_of_the_mps_clients_that_the_agent_tells_of_is_left_for_its_canary(
    told: int | None, limit: int
):
    status = {"maxClients": told} if told else {}
    assert max_clients(a_server(status=status)) == limit
    assert max_clients(a_server(status=status, mode="TimeSlicing")) == 0


def test_a_client_that_was_ended_for_being_too_many_is_told():
    used = {"u": {"memory": "1Gi", "excessProcesses": 3}, "v": {"memory": "1Gi"}}
    server = a_server(
        allocations={u: allocation(u, clients=2) for u in used}, status={"usage": {"jobs": used}}
    )
    assert report_of("u", [server]).above_processes == (
        "it had 3 MPS clients with 2 allocated (spec.processes), so the newest was ended"
    )
    assert report_of("v", [server]).above_processes == ""


def a_server_with(mismatch: dict[str, Any], enforcement: str = "Driver") -> GPUServer:
    usage = {"jobs": {"u": {"memory": "1Gi", "limitMismatch": mismatch}}}
    return a_server(
        enforcement=enforcement,
        allocations={"u": allocation(attempt=2), "v": allocation()},
        status={"usage": usage},
    )


@pytest.mark.parametrize(
    ("found", "words"), [("40Gi", "has the limit 40.0 GiB"), (None, "has no limit")]
)
def test_a_limit_of_the_driver_that_is_wrong_is_told(found: str | None, words: str):
    mismatch = {"expected": "8704Mi"} | ({"found": found} if found else {})
    told = wrong_limit_of("u", a_server_with(mismatch))
    assert words in told
    assert "instead of 8.5 GiB" in told
    assert wrong_limit_of("v", a_server_with(mismatch)) == ""


@pytest.mark.parametrize("enforcement", ["Auto", "Client"])
def test_a_wrong_limit_ends_nothing_where_the_driver_need_not_limit(enforcement: str):
    server = a_server_with({"expected": "8704Mi"}, enforcement)
    assert wrong_limit_of("u", server) == ""


@pytest.mark.parametrize(("serves", "fits"), [(48, False), (60, True), (0, True)])
def test_a_job_with_more_processes_than_any_gpu_serves_never_fits(serves: int, *, fits: bool):
    largest = Largest(memory=37 * GIB, gpus_on_node=1, clients=serves)
    found = resolve(request_of_job(a_job(processes=50)), a_partition(), largest=largest)
    assert isinstance(found, WaitingReason) is not fits
    if isinstance(found, WaitingReason):
        assert found.reason is Reason.NEVER_FITS
        assert "serves at most 48 with its driver" in found.message


def killed(claim: str, second: int) -> dict[str, object]:
    return {"mps": {"killedClient": {"claim": claim, "time": at(second).isoformat()}}}


def test_the_last_kill_of_a_client_of_another_claim_is_found():
    servers = [a_server(status=killed("v", 5)), a_server(status=killed("w", 7)), a_server()]
    assert report_of("u", servers).killed_beside == at(7)
    assert report_of("w", servers).killed_beside == at(5)
    assert report_of("u", [a_server()]).killed_beside is None


@pytest.mark.parametrize(("reason", "claim"), [("MPSClientKilled", "v"), ("MPSFault", "")])
def test_a_fault_that_followed_from_a_kill_names_the_claim(reason: str, claim: str):
    fault = {"type": "Faulted", "status": "True", "reason": reason}
    found = fault_of(a_server(status={"conditions": [fault], **killed("v", 5)}), None)
    assert found is not None
    assert found.killed == claim


@pytest.mark.parametrize("status", ["True", "False"])
@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("ECCError", True),
        ("RecoveryNeeded", True),
        ("XidError", True),
        ("GPULost", True),
        ("NVMLHangs", False),
        ("MPSFault", False),
    ],
)
def test_failed_hardware_is_read_from_the_condition(reason: str, status: str, *, found: bool):
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "why"}
    failed = a_server(status={"conditions": [ready]})
    told = f"{reason}: why" if found else ""
    assert report_of("u", [a_server(), failed]).hardware == told


@pytest.mark.parametrize(
    ("ready", "program", "text"),
    [("MPSFault", True, "MPSFault: lost"), ("ECCError", False, "ECCError: why; MPSFault: lost")],
)
def test_a_fault_while_the_hardware_fails_is_no_programs(ready: str, text: str, *, program: bool):
    conditions = [
        {"type": "Faulted", "status": "True", "reason": "MPSFault", "message": "lost"},
        {"type": "Ready", "status": "False", "reason": ready, "message": "why"},
    ]
    found = fault_of(a_server(status={"conditions": conditions}), None)
    assert found is not None
    assert (found.may_be_a_programs, found.text) == (program, text)
