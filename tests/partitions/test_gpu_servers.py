"""Which GPUs a partition takes, keeps and gives back."""

from collections.abc import Container
from dataclasses import replace
from typing import Any

import pytest

from partita.constants import ANNOTATION_TEMPLATE
from partita.models import GPUPartition, GPUServer
from partita.partitions.gpu_servers import GPUServerChanges, plan_gpu_servers
from partita.store.views import PodView
from support.builders import DELETING, a_partition, a_server, allocation, server_pod_body, view_of

ALLOCATED = {"claim-train": allocation()}
NOTHING = GPUServerChanges()
STARTING: dict[str, Any] = {"node": "", "conditions": {}, "status": {"uuid": "", "memory": "0"}}


def pod(server: str = "shared-0", **fields: Any) -> PodView:
    return view_of(server_pod_body(server, **fields))


def planned(
    partition: GPUPartition | None,
    *servers: GPUServer,
    pods: list[PodView] | None = None,
    nodes: Container[str] = ("node-1",),
    ending: Container[str] = (),
    probing: Container[str] = (),
) -> GPUServerChanges:
    there = [pod(s.metadata.name) for s in servers] if pods is None else pods
    found = {p.owner: p for p in there}
    return plan_gpu_servers(partition, servers, found, nodes, ending=ending, probing=probing)


def names(things: list[GPUServer] | list[PodView]) -> list[str]:
    return [t.metadata.name if isinstance(t, GPUServer) else t.name for t in things]


class TestScaling:
    def test_a_new_partition_takes_its_gpus(self):
        servers = ["shared-0", "shared-1", "shared-2"]
        assert planned(a_partition(gpus=3)) == GPUServerChanges(create_servers=servers)

    def test_names_are_used_again(self):
        todo = planned(a_partition(gpus=3), a_server("shared-1"))
        assert todo == GPUServerChanges(create_servers=["shared-0", "shared-2"])

    def test_scaling_down_gives_back_the_unready_then_the_emptiest_then_the_newest(self):
        servers = [
            a_server("shared-0"),
            a_server("shared-1", allocations=ALLOCATED),
            a_server("shared-2", allocations=ALLOCATED, conditions={"Ready": "False"}),
            a_server("shared-3"),
            a_server("shared-10"),
        ]
        order = []
        for gpus in (4, 3, 2, 1):
            gone = names(planned(a_partition(gpus=gpus), *servers).delete_servers)
            order.append(gone[-1])
        assert order == ["shared-2", "shared-10", "shared-3", "shared-0"]

    def test_one_that_is_drained_goes_first(self):
        drained = a_server("shared-0", drainSince="2026-11-21T12:00:00Z")
        todo = planned(a_partition(gpus=1), drained, a_server("shared-1"))
        assert names(todo.delete_servers) == ["shared-0"]

    def test_one_that_is_given_back_holds_its_place(self):
        draining = a_server("shared-0", metadata=DELETING, allocations=ALLOCATED)
        assert planned(a_partition(gpus=1), draining) == GPUServerChanges()
        todo = planned(a_partition(gpus=2), draining)
        assert todo == GPUServerChanges(create_servers=["shared-1"])

    def test_one_that_is_given_back_is_no_reason_to_give_back_another(self):
        draining = a_server("shared-0", metadata=DELETING, allocations=ALLOCATED)
        assert planned(a_partition(gpus=1), draining, a_server("shared-1")) == GPUServerChanges()


class TestChangesOfMode:
    def test_another_mode_gives_all_back_before_new_ones_are_taken(self):
        servers = [a_server("shared-0", allocations=ALLOCATED), a_server("shared-1")]
        exclusive = a_partition(gpus=2, sharing={"mode": "Exclusive"})
        todo = planned(exclusive, *servers)
        assert todo == GPUServerChanges(delete_servers=servers)

    @pytest.mark.parametrize(
        "change", [{"maxJobsPerGPU": 4}, {"protocol": 3}, {"isolation": "StaticSM"}]
    )
    def test_another_number_of_places_or_what_mps_reads_at_its_start_does_so_too(self, change):
        todo = planned(a_partition(sharing=change), a_server())
        assert names(todo.delete_servers) == ["shared-0"]

    @pytest.mark.parametrize("change", [{"enforcement": "Client"}, {"memoryReservePercent": 20}])
    def test_what_the_agent_follows_gives_none_back(self, change: dict[str, Any]):
        assert planned(a_partition(sharing=change), a_server()) == GPUServerChanges()


class TestGivingBack:
    draining = a_server(metadata=DELETING)

    def test_while_something_is_allocated_nothing_happens(self):
        busy = a_server(metadata=DELETING, allocations=ALLOCATED)
        assert planned(a_partition(gpus=0), busy) == GPUServerChanges()

    def test_then_its_pod_goes(self):
        todo = planned(a_partition(gpus=0), self.draining)
        assert (names(todo.delete_pods), todo.finish) == (["shared-0"], [])

    def test_its_pod_stays_until_its_probe_has_ended(self):
        """Only the agent in that Pod can unprepare the claim of the probe."""
        todo = planned(a_partition(gpus=0), self.draining, probing={"shared-0"})
        assert todo == GPUServerChanges()
        lost = pod(node="node-gone")
        todo = planned(a_partition(gpus=0), self.draining, pods=[lost], probing={"shared-0"})
        assert todo.delete_pods == [lost]

    def test_its_pod_may_take_its_time(self):
        dying = pod(**DELETING)
        assert planned(a_partition(gpus=0), self.draining, pods=[dying]) == GPUServerChanges()

    def test_unless_nobody_is_there_to_end_it(self):
        dying = pod(node="node-gone", **DELETING)
        todo = planned(a_partition(gpus=0), self.draining, pods=[dying])
        assert todo.delete_pods == [dying]

    def test_then_the_gpu_itself_goes(self):
        todo = planned(a_partition(gpus=0), self.draining, pods=[])
        assert todo == GPUServerChanges(finish=[self.draining])

    def test_a_partition_that_is_deleted_gives_all_back(self):
        for partition in (None, a_partition(metadata=DELETING)):
            assert names(planned(partition, a_server()).delete_servers) == ["shared-0"]
        assert planned(None, self.draining, pods=[]).finish == [self.draining]


class TestServerPods:
    def test_a_server_without_a_pod_gets_one(self):
        fresh = a_server(**STARTING)
        assert planned(a_partition(), fresh, pods=[]) == GPUServerChanges(create_pods=[fresh])

    def test_what_a_pod_that_is_gone_has_reported_is_forgotten_first(self):
        server = a_server()
        assert planned(a_partition(), server, pods=[]) == GPUServerChanges(reset=[server])

    def test_but_not_while_jobs_are_allocated_on_that_gpu(self):
        assert planned(a_partition(), a_server(allocations=ALLOCATED), pods=[]) == NOTHING

    @pytest.mark.parametrize("metadata", [{}, DELETING])
    def test_an_agent_comes_back_to_the_node_where_pods_with_claims_end(
        self, metadata: dict[str, Any]
    ):
        server = a_server(allocations=ALLOCATED, metadata=metadata)
        todo = planned(a_partition(), server, pods=[], ending={"shared-0"})
        assert todo == GPUServerChanges(bring_back=[server])
        assert planned(a_partition(), server, pods=[], nodes=(), ending={"shared-0"}) == NOTHING
        assert not planned(a_partition(), server, ending={"shared-0"}).bring_back

    def test_a_pod_that_has_ended_is_replaced(self):
        over = pod(phase="Failed")
        assert planned(a_partition(), a_server(), pods=[over]).delete_pods == [over]
        ending = pod(phase="Failed", **DELETING)
        assert planned(a_partition(), a_server(), pods=[ending]) == NOTHING

    def test_a_pod_whose_node_is_gone_is_replaced(self):
        for stranded in (pod(node="node-gone"), pod(node="node-gone", **DELETING)):
            assert planned(a_partition(), a_server(), pods=[stranded]).delete_pods == [stranded]

    def test_a_pod_that_waits_for_its_node_is_left_alone(self):
        assert planned(a_partition(), a_server(**STARTING), pods=[pod(node="")]) == NOTHING

    def test_a_pod_from_other_settings_is_replaced_until_it_has_started(self):
        def replaced(pod: PodView, wanted: str = "new", **server: Any) -> bool:
            todo = plan_gpu_servers(
                a_partition(),
                [a_server(**{**STARTING, **server})],
                {"shared-0": pod},
                {"node-1"},
                template_hash=wanted,
            )
            assert todo.delete_pods in ([], [pod])
            return bool(todo.delete_pods)

        old: Any = {"annotations": {ANNOTATION_TEMPLATE: "old"}, "phase": "Pending"}
        assert replaced(pod(node="", **old))
        assert replaced(pod(**old))  # its image cannot be pulled, for example
        assert replaced(pod(**{**old, "node": "node-gone"}))
        assert not replaced(pod(node="", **old), wanted="old")
        assert not replaced(pod(node="", phase="Pending"))  # its annotations were removed
        assert not replaced(pod(node="", **old, **DELETING))
        assert not replaced(replace(pod(**old), startup=None))
        assert not replaced(pod(node="", **old), allocations=ALLOCATED)  # brought back

    def test_a_pod_whose_uid_is_not_written_down_is_to_be(self):
        fresh, found = a_server(status={"podUID": ""}), pod()
        todo = planned(a_partition(), fresh, pods=[found])
        assert todo == GPUServerChanges(record=[(fresh, found)])
