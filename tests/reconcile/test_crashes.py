"""Jobs come to their end, each attempt once, whatever happens and wherever the operator dies."""

from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from partita.models import SharingMode
from partita.models.quantities import format_time, parse_memory
from partita.reconcile.job_request import allocatable
from reconcile.crashing_operator import Cluster, Operator, Writes
from support.builders import GIB, node_body, pod_status, server_body

FAILURES = {
    "fail": (1, "bad"),
    "oom": (1, "RuntimeError: CUDA out of memory"),
    "fault": (1, "RuntimeError: CUDA error: unspecified launch failure"),
    "kill": (137, ""),
}
OVER = {"Succeeded", "Failed"}
SPECS = (
    {"gpuMemory": "30Gi"},
    {"gpuMemory": "12Gi"},
    {"gpuMemory": "12Gi", "retry": {"limit": 0}},
    {"gpuMemory": "8Gi", "retry": {"limit": 1, "outOfMemory": {"limit": 1}}},
    {"gpuMemory": None},
    {"gpuMemory": "8Gi", "activeDeadlineSeconds": 40},
)
MOST_JOBS = 6
pick = st.integers(0, 5)


class CrashingOperator(RuleBasedStateMachine):
    """Each rule is one thing that happens; `work` is one write of the operator."""

    mode = SharingMode.MPS
    most_gpus = 1

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(self.mode, servers=2)
        self.operator = Operator(self.cluster)
        self.run: Writes | None = None
        self.count = self.nodes = self.retries = 0

    # The operator.

    @rule(writes=st.integers(1, 4))
    def work(self, writes: int) -> None:
        for _ in range(writes):
            if self.run is None:
                self.operator.catch_up()
                self.run = self.operator.work()
            if next(self.run, "over") == "over":
                self.run = None

    @rule()
    def crash(self) -> None:
        self.run = None
        self.operator = Operator(self.cluster)

    # Users.

    @initialize(specs=st.lists(st.tuples(st.sampled_from(SPECS), st.integers(1, 2)), max_size=3))
    def begin(self, specs: list) -> None:
        for spec, gpus in specs:
            self.submit(spec, gpus)

    @rule(spec=st.sampled_from(SPECS), gpus=st.integers(1, 2))
    def submit(self, spec: dict, gpus: int) -> None:
        if self.count == MOST_JOBS:
            return
        self.count += 1
        self.cluster.submit(f"job-{self.count}", **spec, gpus=min(gpus, self.most_gpus))

    def a_job(self, number: int) -> str | None:
        jobs = self.cluster.jobs()
        return jobs[number % len(jobs)]["metadata"]["uid"] if jobs else None

    @rule(number=pick, suspend=st.booleans())
    def suspend(self, number: int, *, suspend: bool) -> None:
        if uid := self.a_job(number):
            self.cluster.patch(uid, {"spec": {"suspend": suspend}})

    @rule(number=pick)
    def retry(self, number: int) -> None:
        if uid := self.a_job(number):
            self.retries += 1
            annotations = {"partita.dev/retry": str(self.retries)}
            self.cluster.patch(uid, {"metadata": {"annotations": annotations}})

    @rule(number=pick, drained=st.booleans())
    def drain(self, number: int, *, drained: bool) -> None:
        since = format_time(self.cluster.now) if drained else None
        self.cluster.patch(f"uid-shared-{number % 2}", {"spec": {"drainSince": since}})

    @rule(number=pick)
    def delete_job(self, number: int) -> None:
        if number == 0 and (uid := self.a_job(number)):
            self.cluster.remove(uid)

    @rule(number=pick, force=st.booleans())
    def delete_pod(self, number: int, *, force: bool) -> None:
        """Delete a Pod by hand."""
        pods = self.cluster.pods()
        if not pods:
            return
        self.cluster.delete_pod(pods[number % len(pods)]["metadata"]["uid"], now=force)

    # Nodes and their GPUs.

    @rule(number=pick, end=st.sampled_from(["run", "succeed", *FAILURES, "confirm"]))
    def kubelet(self, number: int, end: str) -> None:
        pods = [p for p in self.cluster.pods() if p["status"]["phase"] not in OVER]
        if not pods or not self.node_is_there:
            return
        pod = pods[number % len(pods)]
        uid, now = pod["metadata"]["uid"], self.cluster.now
        if end == "confirm" and "deletionTimestamp" in pod["metadata"]:
            self.cluster.remove(uid)
        elif end == "run":
            self.cluster.patch(uid, {"status": pod_status("Running", started=now)})
        elif pod["status"]["phase"] == "Running":
            code, said = FAILURES.get(end, (0, ""))
            phase = "Failed" if code else "Succeeded"
            status = pod_status(phase, exit_code=code, message=said, started=now, finished=now)
            self.cluster.patch(uid, {"status": status})

    @property
    def node_is_there(self) -> bool:
        return bool(self.cluster.of("uid-node-"))

    @rule(number=pick, faulted=st.booleans())
    def fault(self, number: int, *, faulted: bool) -> None:
        conditions = server_body(conditions={"Ready": str(not faulted), "Faulted": str(faulted)})[
            "status"
        ]["conditions"]
        uid = f"uid-shared-{number % 2}"
        self.cluster.patch(uid, {"status": {"conditions": conditions}})

    @rule(number=pick)
    def report(self, number: int) -> None:
        """The agent writes, so the operator's next precondition does not hold."""
        uid = f"uid-shared-{number % 2}"
        self.cluster.patch(uid, {"status": {"usage": {"memory": f"{number}Gi"}}})

    @rule()
    def lose_node(self) -> None:
        for node in self.cluster.of("uid-node-"):
            self.cluster.remove(node["metadata"]["uid"])

    @rule()
    def bring_node_back(self) -> None:
        if not self.node_is_there:
            self.nodes += 1
            self.cluster.put(node_body(uid=f"uid-node-1-{self.nodes}"))

    @rule(seconds=st.sampled_from([1, 10, 60]))
    def wait(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @invariant()
    def nothing_is_broken(self) -> None:
        self.cluster.check()

    def teardown(self) -> None:
        """Let everything become well: all jobs must come to their end and leave nothing."""
        self.bring_node_back()
        for number in (0, 1):
            self.fault(number, faulted=False)
            self.drain(number, drained=False)
        for job in self.cluster.jobs():
            self.cluster.patch(job["metadata"]["uid"], {"spec": {"suspend": False}})
        for _ in range(60):
            self.operator.catch_up()
            for _ in self.operator.work():
                self.cluster.check()
            self.cluster.check()
            for pod in self.cluster.pods():
                self.let_end(pod)
            self.cluster.now += timedelta(seconds=30)
            if self.is_over():
                break
        self.check_the_end()

    def let_end(self, pod: dict) -> None:
        uid, now = pod["metadata"]["uid"], self.cluster.now
        if "deletionTimestamp" in pod["metadata"]:
            self.cluster.remove(uid)
        elif pod["status"]["phase"] not in OVER:
            status = pod_status("Succeeded", started=now, finished=now)
            self.cluster.patch(uid, {"status": status})

    def is_over(self) -> bool:
        allocated = any(server.status.allocations for server in self.cluster.servers())
        phases = {(job.get("status") or {}).get("phase") for job in self.cluster.jobs()}
        return not allocated and phases <= OVER

    def check_the_end(self) -> None:
        stuck = [(j["metadata"]["name"], j["status"]) for j in self.cluster.jobs()]
        assert self.is_over(), stuck
        for job in self.cluster.jobs():
            attempts = [a for a in job["status"]["attempts"] if a.get("pod")]
            made = [
                name
                for name in self.cluster.created
                if name.rpartition("-")[0] == job["metadata"]["name"]
            ]
            # One that was created and deleted before anybody saw it is not told of.
            assert len(attempts) <= len(made) or len(job["status"]["attempts"]) == 20
            assert all("outcome" in attempt for attempt in attempts)
            after = job["status"].get("retriedAfter", 0)
            failed = sum(a["outcome"] == "Failed" for a in attempts if a["number"] > after)
            assert failed <= job["spec"].get("retry", {}).get("limit", 3) + 1
            self.check_memory(job)

    def check_memory(self, job: dict) -> None:
        """Nobody gives up for want of memory without having had all chances, or all memory."""
        if job["status"]["reason"] != "OutOfMemory":
            return
        refused = [
            parse_memory(a["memory"])
            for a in job["status"]["attempts"]
            if a["outcome"] == "OutOfMemory" and a["number"] > job["status"].get("retriedAfter", 0)
        ]
        limit = job["spec"].get("retry", {}).get("outOfMemory", {}).get("limit", 3)
        whole = allocatable(40 * GIB, self.cluster.partition)
        assert len(refused) == limit + 1 or max(refused) == whole


class CrashingExclusiveOperator(CrashingOperator):
    """The same with jobs on two GPUs, which are allocated one after the other."""

    mode = SharingMode.EXCLUSIVE
    most_gpus = 2


# Seconds of arithmetic, and a minute where others compute beside it.
TestCrashes = pytest.mark.timeout(300)(CrashingOperator.TestCase)
TestCrashes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestExclusiveCrashes = pytest.mark.timeout(300)(CrashingExclusiveOperator.TestCase)
TestExclusiveCrashes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_pod_deleted_by_force_after_a_crash_is_not_created_again(writes: int):
    operator = CrashingOperator()
    operator.submit({"gpuMemory": "30Gi"}, 1)
    for _ in range(writes):
        operator.work(writes=1)
    for pod in operator.cluster.pods():
        operator.cluster.delete_pod(pod["metadata"]["uid"], now=True)
    operator.crash()  # who starts now has seen nothing of the Pod
    operator.teardown()
