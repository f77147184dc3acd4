"""A job avoids, for a while, a node on which its Pod did not start."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.plans import NOW, attempt, with_attempts
from partita.models import Outcome
from partita.pods.outcome import read_outcome
from partita.scheduling.avoided_nodes import AVOIDED_FOR, avoided_nodes, avoided_until, avoids_all
from partita.scheduling.node_fit import Host, Largest
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve
from partita_policies.types import Job
from support.builders import GIB, START, a_job, a_partition, at, pod_status

ENDED = at(50)
"""When the attempts of `reconcile.plans` end."""


def avoided(outcome: Outcome, reason: str, *, now: Any = NOW, **fields: Any) -> frozenset[str]:
    made = attempt(1, outcome, **{"startTime": None, "reason": reason, **fields})
    return avoided_nodes(with_attempts(made).status.attempts, now)


@pytest.mark.parametrize(
    ("outcome", "reason", "is_avoided"),
    [
        (Outcome.NOT_STARTED, "ImagePullBackOff", True),
        (Outcome.NOT_STARTED, "ContainerCreating", True),
        (Outcome.NOT_STARTED, "NodeNotReady", True),
        (Outcome.NOT_STARTED, "Unschedulable", True),
        (Outcome.NOT_STARTED, "SchedulingGated", False),
        (Outcome.NOT_STARTED, "NotScheduled", False),
        (Outcome.NOT_STARTED, "CreateContainerConfigError", False),
        (Outcome.NOT_STARTED, "InvalidImageName", False),
        (Outcome.EVICTED, "UnexpectedAdmissionError", True),
        (Outcome.EVICTED, "", False),
        (Outcome.FAILED, "", False),
    ],
)
def test_a_node_that_may_be_the_cause_is_avoided(outcome, reason, is_avoided):
    assert avoided(outcome, reason) == ({"node-1"} if is_avoided else set())


def test_a_node_on_which_its_program_ran_is_not():
    assert avoided(Outcome.EVICTED, "Evicted", startTime="2026-01-01T12:00:02Z") == set()


def test_it_is_avoided_for_a_while_only():
    made = attempt(1, Outcome.NOT_STARTED, startTime=None, reason="ImagePullBackOff")
    attempts = with_attempts(made).status.attempts
    until = ENDED + AVOIDED_FOR
    just_before = until - timedelta(milliseconds=1)
    assert avoided_until(attempts, just_before) == until
    assert avoided_nodes(attempts, just_before) == {"node-1"}
    assert (avoided_until(attempts, until), avoided_nodes(attempts, until)) == (None, set())


def test_an_end_by_a_clock_that_was_wrong_does_not_count():
    assert avoided(Outcome.NOT_STARTED, "ImagePullBackOff", now=at(49)) == set()


NODE_1, NODE_2 = (Host("node-1", memory=37 * GIB, gpus=2), Host("node-2", memory=74 * GIB, gpus=1))


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({"gpuMemory": "8Gi"}, {"node-2"}),
        ({"gpus": 2}, set()),  # node-2 has too few
        ({"gpuMemory": "50Gi"}, set()),  # it has always been for node-2
    ],
)
def test_only_nodes_that_could_run_the_job_remain(asked, nodes):
    mode = {"mode": "Exclusive"} if "gpus" in asked else {"mode": "MPS"}
    largest, request = Largest.of([NODE_1, NODE_2]), request_of_job(a_job(**asked))
    found = resolve(request, a_partition(sharing=mode), largest=largest, avoided={"node-1"})
    assert isinstance(found, Job)
    assert found.nodes == nodes


def test_the_last_node_is_not_avoided():
    for hosts, avoids in (([NODE_1], {"node-1"}), ([NODE_1, NODE_2], {"node-1", "node-2"})):
        largest = Largest.of(hosts)
        found = resolve(request_of_job(a_job()), a_partition(), largest=largest, avoided=avoids)
        assert isinstance(found, Job)
        assert found.nodes == set()


@pytest.mark.parametrize(
    ("asked", "avoids", "all_of_them"),
    [
        ({"gpuMemory": "8Gi"}, {"node-1"}, False),
        ({"gpuMemory": "8Gi"}, {"node-1", "node-2"}, True),
        ({"gpuMemory": "50Gi"}, {"node-2"}, True),  # node-1 is too small
        ({"gpuMemory": "8Gi"}, set(), False),
    ],
)
def test_it_is_known_when_no_other_node_is_left(asked, avoids, all_of_them):
    hosts, request = [NODE_1, NODE_2], request_of_job(a_job(**asked))
    found = resolve(request, a_partition(), largest=Largest.of(hosts), avoided=avoids)
    assert isinstance(found, Job)
    assert avoids_all(avoids, hosts, found) == all_of_them


def test_only_kubelet_s_reason_is_recorded():
    rejected = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough"}
    assert read_outcome(rejected).reason == "OutOfcpu"
    assert read_outcome(rejected | {"startTime": "2026-01-01T12:00:00Z"}).rejected_at == START
    assert read_outcome({"phase": "Failed", "reason": "DeadlineExceeded"}).reason == ""
    assert read_outcome(pod_status("Succeeded")).reason == ""
