"""Which workloads count as idle."""

from typing import Any

from partita.models.partition import GPUPartitionSpec
from partita.models.quantities import format_time
from partita.scheduling.idle import evictable, idle_at
from support.builders import a_server, allocation, at
from support.claims import claim_entry

NOW = at(1000)


def a_spec(**idle: Any) -> GPUPartitionSpec:
    return GPUPartitionSpec.model_validate({"gpus": 1, "idle": {"after": "10m", **idle}})


EVICTS = a_spec(action="Evict")


def server(name: str = "shared-0", **idle_since: float | None) -> Any:
    """A GPU whose claims have run no kernel since so many seconds, or have run one just now."""
    jobs = {
        uid: {"idleSince": format_time(at(since))} if since is not None else {"memory": "1Gi"}
        for uid, since in idle_since.items()
    }
    entries = {uid: claim_entry(f"{uid}-gpu", pod=uid) for uid in idle_since}
    return a_server(name, allocations=entries, status={"usage": {"jobs": jobs}})


def test_a_workload_is_idle_after_the_time_that_its_partition_sets() -> None:
    gpu = server(old=100, new=500, older=50, busy=None)
    assert evictable([gpu], EVICTS, NOW) == {"older", "old"}
    assert idle_at("new", [gpu], EVICTS) == at(1100)
    assert idle_at("busy", [gpu], EVICTS) is None


def test_a_workload_is_idle_when_it_uses_none_of_its_gpus() -> None:
    gpus = [server("shared-0", one=100, other=100), server("shared-1", one=None, other=300)]
    assert evictable(gpus, EVICTS, NOW) == {"other"}
    assert idle_at("other", gpus, EVICTS) == at(900)


def test_a_workload_that_is_not_reported_is_not_idle() -> None:
    silent = a_server(allocations={"serve": claim_entry()})
    assert evictable([silent], EVICTS, NOW) == set()


def test_a_job_is_not_idle_because_it_ends_by_itself() -> None:
    report = {"usage": {"jobs": {"train": {"idleSince": format_time(at(0))}}}}
    gpu = a_server(allocations={"train": allocation()}, status=report)
    assert evictable([gpu], EVICTS, NOW) == set()


def test_idle_workloads_are_only_evicted_where_the_partition_says_so() -> None:
    gpu = server(old=100, busy=None)
    assert evictable([gpu], a_spec(), NOW) == set()
    assert evictable([gpu], GPUPartitionSpec(gpus=1), NOW) == set()  # it sets no time
    assert evictable([gpu], EVICTS, NOW) == {"old"}
