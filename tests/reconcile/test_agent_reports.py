"""What the agents report that concerns a job."""

import pytest

from partita.reconcile.agent_reports import excess_of, max_clients
from partita.reconcile.job_request import Largest, resolve
from partita.reconcile.reasons import Reason, Why
from support.builders import GIB, a_job, a_partition, a_server, allocation


@pytest.mark.parametrize(("told", "limit"), [(60, 60), (48, 48), (None, 48)])
def test_the_limit_of_mps_clients_is_what_the_agent_tells(told: int | None, limit: int):
    status = {"maxClients": told} if told else {}
    assert max_clients(a_server(status=status)) == limit
    assert max_clients(a_server(status=status, mode="TimeSlicing")) == 0


def test_a_client_that_was_ended_for_being_too_many_is_told():
    used = {"u": {"memory": "1Gi", "excessProcesses": 3}, "v": {"memory": "1Gi"}}
    server = a_server(
        allocations={u: allocation(u, clients=2) for u in used}, status={"usage": {"jobs": used}}
    )
    assert excess_of("u", [server]) == (
        "it had 3 MPS clients with 2 allocated (spec.processes), so the newest was ended"
    )
    assert excess_of("v", [server]) == ""


@pytest.mark.parametrize(("serves", "fits"), [(48, False), (60, True), (0, True)])
def test_a_job_with_more_processes_than_any_gpu_serves_never_fits(serves: int, *, fits: bool):
    largest = Largest(memory=37 * GIB, gpus_on_node=1, clients=serves)
    found = resolve(a_job(processes=50), a_partition(), largest=largest)
    assert isinstance(found, Why) is not fits
    if isinstance(found, Why):
        assert found.reason is Reason.NEVER_FITS
        assert "serves at most 48 with its driver" in found.message
