"""What a placed job gets: the entry in the ledger, and the allocation of its Pod."""

from typing import Any

import pytest

from partita.claims.new_allocations import ledger_entries
from partita.jobs.job_allocation import job_allocation, unused_ceiling
from partita.models import Allocation, GPUServer
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from partita_policies.types import Job
from support.builders import GIB, START, a_job, a_partition, a_pod, server_body
from support.claims import a_claim, a_claiming_pod, a_job_claim

BURST = {"gpuMemory": "8Gi", "gpuMemoryLimit": "20Gi"}
SPARE = {"burst": "Spare"}


def server(enforcement: str | None = "Driver") -> GPUServer:
    status = {} if enforcement is None else {"enforcement": enforcement}
    return GPUServer.parse(server_body(status=status))


def asks(**fields: Any) -> Job:
    values = {"memory": 8 * GIB, "memory_limit": 20 * GIB} | fields
    return Job("uid-train", "team-a/train", "team-a", **values)


def entry(
    enforcement: str | None = "Driver",
    allocatable: float = 37,
    *,
    claim: ClaimView | None = None,
    pod: PodView | None = None,
    **fields: Any,
) -> Allocation:
    memory, servers = {"shared-0": int(allocatable * GIB)}, {"shared-0": server(enforcement)}
    claim, pod = claim or a_job_claim(), pod or a_pod(gated=True)
    entries = ledger_entries(asks(**fields), memory, servers, claim=claim, pod=pod, since=START)
    return entries["shared-0"]


def amounts(found: Allocation) -> tuple[float, float | None]:
    limit = found.memory_limit
    return found.memory / GIB, None if limit is None else limit / GIB


def test_it_has_its_claim_its_pod_and_its_job_if_there_is_one():
    found = entry()
    assert (found.namespace, found.name) == ("team-a", "train-1.partita.dev")
    assert (found.job, found.job_uid, found.attempt) == ("train", "uid-train", 1)
    assert (found.pod, found.pod_uid, found.since) == ("train-1", "pod-train-1", START)
    found = entry(claim=a_claim(), pod=a_claiming_pod())
    assert (found.name, found.pod, found.pod_uid) == ("serve-1-gpu", "serve-1", "uid-serve-1")
    assert (found.job, found.job_uid, found.attempt, found.user) == ("", "", 0, "serve-1")


def test_the_ceiling_is_in_force_where_the_driver_limits_memory():
    assert amounts(entry()) == (8, 20)
    assert amounts(entry("Client")) == (8, None)
    assert amounts(entry(None)) == (8, None)


def test_the_ceiling_is_at_most_what_the_gpu_can_allocate():
    assert amounts(entry(allocatable=16)) == (8, 16)
    assert amounts(entry(allocatable=8)) == (8, None)


def test_contexts_are_in_neither_amount():
    contexts = {"memory": 9 * GIB, "memory_limit": 21 * GIB, "context_memory": GIB}
    assert amounts(entry(**contexts)) == (8, 20)
    assert amounts(entry(allocatable=16, **contexts)) == (8, 15)


def test_a_job_that_has_its_gpu_to_itself_needs_no_ceiling():
    assert amounts(entry(alone=True)) == (37, None)


@pytest.mark.parametrize(("enforcement", "ceiling"), [("Driver", 20), ("Client", 8)])
def test_the_pod_gets_the_same_ceiling_as_the_ledger_while_the_driver_limits_memory(
    enforcement: str, ceiling: int
):
    made = job_allocation(a_job(**BURST), 2, asks(), [server(enforcement)], a_partition())
    assert (made.memory, made.ceiling) == (8 * GIB, ceiling * GIB)
    assert made.driver_limits is (enforcement == "Driver")


class TestUnusedCeiling:
    def told(self, found: Allocation, sharing: dict[str, Any], **spec: Any) -> str:
        slices = [{"name": "small", "memory": "8Gi", "memoryLimit": "20Gi"}]
        job = a_job(**(spec or BURST))
        if "slice" in spec:
            own = job.spec.model_copy(update={"gpu_memory": None})
            job = job.model_copy(update={"spec": own})
        return unused_ceiling(job, {"shared-0": found}, a_partition(sharing=sharing, slices=slices))

    def test_it_is_told_with_the_cause_and_the_limit(self):
        assert self.told(entry("Client"), SPARE) == (
            "gpuMemoryLimit has no effect on shared-0: the driver does not limit memory there (see "
            "the condition DriverLimits of the GPUServer), so the job is limited to 8.0 GiB"
        )
        assert self.told(entry(memory_limit=0), {}) == (
            "gpuMemoryLimit has no effect: partition shared has sharing.burst Never, so the job is "
            "limited to 8.0 GiB"
        )
        assert self.told(entry("Client"), SPARE, slice="small").startswith(
            "memoryLimit of its slice has no effect on shared-0"
        )

    def test_nothing_is_told_of_a_ceiling_in_force_or_of_none(self):
        assert not self.told(entry(), SPARE)
        assert not self.told(entry(memory_limit=0), {}, gpuMemory="8Gi")
        assert not self.told(entry("Client"), SPARE, gpuMemory="8Gi", gpuMemoryLimit="8Gi")
        assert not self.told(entry("Client", alone=True), SPARE)
