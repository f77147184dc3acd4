"""Pods with ResourceClaims on simulated nodes; the tests take the part of Partita's operator."""

from __future__ import annotations

from nodes.simulated_cluster import SERVERS, Body, SimulatedCluster

FEW_CPUS = {"cpu": "1", "memory": "1Ti", "ephemeral-storage": "1Ti"}


async def refused(cluster: SimulatedCluster, job: str) -> str:
    """Wait until the scheduler has refused the Pod of a job; return its message."""

    def condition(pod: Body) -> Body:
        conditions = pod["status"].get("conditions", [])
        found = (c for c in conditions if c["type"] == "PodScheduled")
        return next((c for c in found if c["status"] == "False"), {})

    pod = await cluster.api.until(cluster.path(job), condition)
    return str(condition(pod)["message"])


class TestScheduler:
    async def test_a_pod_that_would_fit_on_another_node_loses_its_allocation(
        self, cluster, nodes, node_spec
    ) -> None:
        small = node_spec("-small", allocatable=FEW_CPUS)
        large = node_spec("-large")
        async with nodes.running(small, large):
            server = await cluster.ready(await cluster.server(nodeName=small.name))
            await cluster.submit("train", cpu="2")
            await refused(cluster, "train")
            await cluster.enter("train", server)
            await cluster.allocate("train", server)
            path = cluster.claim_path("train")
            await cluster.api.until(path, lambda c: not c["status"].get("allocation"))
            assert "1 Insufficient cpu" in await refused(cluster, "train")


class TestKubelet:
    async def test_a_pod_starts_only_if_the_ledger_contains_its_claim(
        self, cluster, nodes, node_spec
    ) -> None:
        async with nodes.running(node_spec()):
            server = await cluster.ready(await cluster.server())
            await cluster.submit("train", duration="1s")
            await cluster.allocate("train", server)
            events = f"/api/v1/namespaces/{cluster.namespace}/events"

            def says(listed: Body) -> list[str]:
                found = [e for e in listed["items"] if e["involvedObject"]["name"] == "train-1"]
                return [e["message"] for e in found]

            (message,) = says(await cluster.api.until(events, says))
            assert "Failed to prepare dynamic resources: " in message
            assert f"the ledger of GPUServer {server['metadata']['name']} does not contain it" in (
                message
            )
            waiting = (await cluster.api.get(cluster.path("train"))).ok().body
            (status,) = waiting["status"]["containerStatuses"]
            assert status["state"] == {"waiting": {"reason": "ContainerCreating"}}
            await cluster.enter("train", server)
            assert (await cluster.ended("train"))["status"]["phase"] == "Succeeded"

    async def test_a_deleted_pod_is_gone_when_an_agent_can_unprepare_its_claim(
        self, cluster, nodes, node_spec
    ) -> None:
        async with nodes.running(node_spec()):
            name = await cluster.server()
            server = await cluster.ready(name)
            await cluster.job("serve", server, restart="Always")
            await cluster.phase("serve", "Running")
            await cluster.api.delete(f"{cluster.pods}/{name}")
            await cluster.api.gone(f"{cluster.pods}/{name}")
            path = cluster.path("serve")
            await cluster.api.delete(path)
            stuck = (await cluster.api.get(path)).ok().body
            assert "deletionTimestamp" in stuck["metadata"]
            await cluster.server_pod(name)
            await cluster.api.gone(path)


async def test_an_agent_reports_all_again_that_the_operator_has_forgotten(
    cluster, nodes, node_spec
) -> None:
    async with nodes.running(node_spec()):
        before = await cluster.ready(name := await cluster.server())
        forgotten = {"status": dict.fromkeys(before["status"])}
        (await cluster.api.patch(f"{SERVERS}/{name}/status", forgotten)).ok()
        again = await cluster.ready(name)
    assert again["status"].keys() == before["status"].keys()
