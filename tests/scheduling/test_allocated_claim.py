"""When the memory of a claim is raised, and what its status says."""

from typing import Any

import pytest

from partita.models import GPUServer
from partita.models.quantities import format_time
from partita.scheduling.allocated_claim import allocated_why, growth_of, refused_memory
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.workload_pod import WorkloadPod
from partita_policies.types import Job
from support.builders import GIB, a_server, at
from support.claims import a_claiming_pod, claim_entry

OWNER = {"kind": "StatefulSet", "name": "notebook", "uid": "uid-notebook"}


def server(usage: dict[str, Any] | None = None, **entry: Any) -> GPUServer:
    status = {"usage": {"jobs": {"claim": usage}}} if usage else None
    return a_server(allocations={"claim": claim_entry(**entry)}, status=status)


def pod(
    *, started: float = 0, message: str = "CUDA out of memory", running: bool = False, **fields: Any
) -> WorkloadPod:
    ended = {"exitCode": 1, "message": message, "startedAt": format_time(at(started))}
    state = {"running": {}} if running else {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "main", "state": state, "lastState": {"terminated": ended}}
    workload = a_claiming_pod(status={"containerStatuses": [container]}, **fields).workload
    assert workload is not None
    return workload


def asks(memory: int, **fields: Any) -> Job:
    return Job("claim", "team-a/serve", "team-a", memory=memory * GIB, **fields)


class TestRefusedMemory:
    def test_a_pod_was_refused_what_it_had_only_if_it_ran_out(self) -> None:
        assert refused_memory("claim", pod(), server()) == 8 * GIB
        assert refused_memory("claim", pod(), server(memoryLimit="12Gi")) == 12 * GIB
        assert refused_memory("claim", pod(message="ValueError"), server()) == 0

    def test_without_a_message_the_peak_that_the_agent_measured_decides(self) -> None:
        assert refused_memory("claim", pod(message=""), server({"peakMemory": "8Gi"})) == 8 * GIB
        assert refused_memory("claim", pod(message=""), server({"peakMemory": "6Gi"})) == 0

    @pytest.mark.parametrize(("started", "refused"), [(50, 0), (101, 0), (110, 8 * GIB)])
    def test_only_a_container_with_the_present_limits_counts(
        self, started: float, refused: int
    ) -> None:
        grown = server(grownSince=format_time(at(100)))
        assert refused_memory("claim", pod(started=started), grown) == refused

    def test_a_pod_that_is_being_ended_gets_no_more(self) -> None:
        ending = server(releasingSince=format_time(at(5)), releaseDeadline=format_time(at(35)))
        assert refused_memory("claim", pod(), ending) == 0


class TestGrowth:
    ENTRY = server().status.allocations["claim"]

    def test_it_is_what_the_claim_asks_for_now(self) -> None:
        found = growth_of(self.ENTRY, "shared-0", asks(12), pod())
        assert found is not None
        assert (found.gpu_server, found.job.memory) == ("shared-0", 12 * GIB)

    @pytest.mark.parametrize(
        "job",
        [asks(8), asks(6), asks(12, alone=True), WaitingReason(Reason.NEVER_FITS, "too large")],
    )
    def test_there_is_none_without_more_memory(self, job: Job | WaitingReason) -> None:
        assert growth_of(self.ENTRY, "shared-0", job, pod()) is None

    def test_a_higher_ceiling_is_more_memory(self) -> None:
        borrows = server(memoryLimit="12Gi").status.allocations["claim"]
        assert growth_of(borrows, "shared-0", asks(8, memory_limit=12 * GIB), pod()) is None
        assert growth_of(borrows, "shared-0", asks(8, memory_limit=18 * GIB), pod()) is not None

    @pytest.mark.parametrize(
        ("workload", "movable"),
        [(pod(owner=OWNER), True), (pod(owner=OWNER, running=True), False), (pod(), False)],
    )
    def test_only_a_pod_that_does_not_run_and_is_replaced_may_move(
        self, workload: WorkloadPod, *, movable: bool
    ) -> None:
        found = growth_of(self.ENTRY, "shared-0", asks(12), workload)
        assert found is not None
        assert found.movable is movable


class TestStatus:
    def say(self, body: GPUServer | None = None, **fields: Any) -> str:
        found = body or server()
        why = allocated_why([found], found.status.allocations["claim"], **fields)
        return f"{why.reason}: {why.message}"

    def test_it_says_what_the_claim_has(self) -> None:
        assert self.say() == "Allocated: 8.0 GiB on shared-0 (node node-1)"
        assert self.say(server(grownSince=format_time(at(9)))) == (
            "Allocated: 8.0 GiB on shared-0 (node node-1), raised after it ran out of GPU memory"
        )

    def test_it_names_each_of_several_gpus(self) -> None:
        gpus = [a_server(name, allocations={"claim": claim_entry()}) for name in ("a-0", "a-1")]
        why = allocated_why(gpus, gpus[0].status.allocations["claim"])
        assert why.message == "8.0 GiB on a-0, a-1 (node node-1)"

    def test_it_says_since_when_the_workload_is_idle(self) -> None:
        assert self.say(idle_since=at(60)) == (
            f"Idle: has run no kernel since {format_time(at(60))}, and has 8.0 GiB on shared-0 "
            "(node node-1)"
        )

    def test_it_says_what_a_workload_waits_for_that_ran_out_of_memory(self) -> None:
        growth = growth_of(TestGrowth.ENTRY, "shared-0", asks(12), pod())
        said = self.say(refused=8 * GIB, growth=growth, not_grown="it needs 4.0 GiB more")
        assert said == (
            "OutOfMemory: ran out of GPU memory with 8.0 GiB, gets 12.0 GiB as soon as there is "
            "room: it needs 4.0 GiB more"
        )
        assert self.say(refused=8 * GIB).startswith(
            "OutOfMemory: ran out of GPU memory with 8.0 GiB, and gets no more"
        )
