"""A Pod is known by what its tenant cannot write: labels and annotations of it mean nothing.

Each test is an attack that a user with the right to write Pods in one namespace could make.
"""

from __future__ import annotations

from typing import Any

from support.api import Api
from support.operator import Job, System, container
from support.queues import LONG

Body = dict[str, Any]
AWAY = {"schedulerName": "nobody"}
"""No node takes such a Pod, so it stays as its owner writes it."""


async def plain_pod(system: System, name: str, namespace: str, **metadata: Any) -> str:
    """Create a Pod as a user would; return its path."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container()], **AWAY},
    }
    await system.seen((await system.api.post(path, body)).ok())
    return f"{path}/{name}"


async def changed(system: System, path: str, patch: Body) -> None:
    """Change an object, and wait until the operator has seen that."""
    await system.seen((await system.api.patch(path, patch)).ok())


async def is_there(api: Api, path: str) -> bool:
    """Tell whether an object is there and nobody wants it gone."""
    answer = await api.get(path)
    return answer.status == 200 and "deletionTimestamp" not in answer.body["metadata"]


async def another_job_runs(system: System, partition: str) -> None:
    """Have a job run from submission to its end: the operator acts on what was done before."""
    job = await system.job("after", partition, gpuMemory="1Gi")
    await job.succeeds()
    await job.delete()


async def has_waited(system: System, partition: str, name: str = "second") -> Job:
    """Submit a job for which there is no room, and see it wait."""
    job = await system.job(name, partition, gpuMemory="30Gi", sim=LONG)
    await job.waits("InsufficientMemory")
    return job


async def test_a_pod_with_a_server_pods_labels_is_no_server_pod(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        victim = await system.job("victim", partition, gpuMemory="8Gi", sim=LONG)
        await victim.runs()
        labels = {"partita.dev/component": "server", "partita.dev/server": f"{partition}-0"}
        fakes = [
            await plain_pod(system, f"fake-{i}", namespace, labels=labels)
            for i, namespace in enumerate([system.namespace, await system.another_namespace()])
        ]
        await another_job_runs(system, partition)
        assert all([await is_there(system.api, fake) for fake in fakes])
        for fake in fakes:
            await changed(system, f"{fake}/status", {"status": {"phase": "Failed"}})
        await another_job_runs(system, partition)
        assert all([await is_there(system.api, fake) for fake in fakes])
        assert victim.outcomes == [""]


async def test_a_pod_that_names_a_job_of_another_namespace_is_not_its_pod(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        victim = await system.job("victim", partition, gpuMemory="8Gi", sim=LONG)
        await victim.runs()
        fake = await plain_pod(
            system,
            "fake",
            await system.another_namespace(),
            labels={
                "partita.dev/component": "job",
                "partita.dev/job": "victim",
                "partita.dev/attempt": "1",
            },
            annotations={"partita.dev/job-uid": victim.uid},
        )
        await changed(system, f"{fake}/status", {"status": {"phase": "Succeeded"}})
        await another_job_runs(system, partition)
        assert (victim.status["phase"], victim.outcomes) == ("Running", [""])


async def test_a_pod_that_has_a_job_of_another_namespace_as_its_owner_is_not_its_pod(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        victim = await system.job("victim", partition, gpuMemory="8Gi", sim=LONG)
        await victim.runs()
        owner = victim.pod()["metadata"]["ownerReferences"][0]  # type: ignore[index]
        fake = await plain_pod(
            system, "victim-1", await system.another_namespace(), ownerReferences=[owner]
        )
        # The garbage collector may be faster: such an owner is not there.
        await system.api.patch(f"{fake}/status", {"status": {"phase": "Succeeded"}})
        await another_job_runs(system, partition)
        assert (victim.status["phase"], victim.outcomes) == ("Running", [""])


async def test_a_pod_that_loses_its_labels_keeps_its_allocation(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        hog = await system.job("hog", partition, gpuMemory="30Gi", sim=LONG)
        await hog.runs()
        path = f"/api/v1/namespaces/{system.namespace}/pods/hog-1"
        keys = ("component", "attempt", "job", "partition")
        labels = {f"partita.dev/{key}": None for key in keys}
        await changed(system, path, {"metadata": {"labels": labels}})
        await has_waited(system, partition)
        assert hog.outcomes == [""]
        assert await is_there(system.api, path)


async def test_a_pod_that_loses_its_owner_is_followed_to_its_end(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        hog = await system.job("hog", partition, gpuMemory="30Gi", sim=LONG)
        await hog.runs()
        path = f"/api/v1/namespaces/{system.namespace}/pods/hog-1"
        await changed(system, path, {"metadata": {"ownerReferences": None}})
        second = await has_waited(system, partition)
        assert hog.outcomes == [""]
        (await system.api.delete(path)).ok()
        await second.runs()
        await hog.delete()


async def test_a_pod_that_loses_its_owner_keeps_its_allocation_when_the_operator_restarts(
    system: System,
) -> None:
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition()
            hog = await system.job("hog", partition, gpuMemory="30Gi", sim=LONG)
            await hog.runs()
            path = f"/api/v1/namespaces/{system.namespace}/pods/hog-1"
            await changed(system, path, {"metadata": {"ownerReferences": None}})
        async with system.operator():
            second = await has_waited(system, partition)
            assert hog.outcomes == [""]
            assert await is_there(system.api, path)
            (await system.api.delete(path)).ok()
            await second.runs()
            await system.settle()


async def test_the_allocation_of_a_deleted_job_stays_while_its_orphaned_pod_runs(
    system: System,
) -> None:
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition()
            hog = await system.job("hog", partition, gpuMemory="30Gi", sim=LONG)
            await hog.runs()
            path = f"/api/v1/namespaces/{system.namespace}/pods/hog-1"
            await changed(system, path, {"metadata": {"ownerReferences": None}})
            await hog.delete()
        async with system.operator():
            second = await has_waited(system, partition)
            assert await is_there(system.api, path)
            (await system.api.delete(path)).ok()
            await second.runs()
            await system.settle()


async def allocate_by_hand(system: System, job: Job, server: Body, *, attempt: int = 1) -> None:
    """Write an attempt into the ledger of a GPU on which one other job runs."""
    (there,) = server["status"]["allocations"].values()
    allocation = {
        "namespace": system.namespace,
        "name": job.name,
        "attempt": attempt,
        "memory": "1Gi",
        "since": there["since"],
    }
    ledger = {"status": {"allocations": {job.uid: allocation}}}
    path = f"/apis/partita.dev/v1alpha1/gpuservers/{server['metadata']['name']}/status"
    (await system.api.patch(path, ledger)).ok()


async def test_a_pod_deleted_by_force_while_nobody_leads_is_not_created_again(
    system: System,
) -> None:
    """The operator ends between the creation of a Pod and the record of it."""
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition()
            first = await system.job("first", partition, gpuMemory="30Gi", sim=LONG)
            await first.runs()
            second = await system.job("second", partition, gpuMemory="30Gi", sim=LONG)
            await second.waits("InsufficientMemory")
            (server,) = system.servers(partition)
        # As if the operator had allocated, and had been killed.
        await allocate_by_hand(system, second, server)
        async with system.operator():
            await second.waits("InsufficientMemory")
            await first.delete()
            status = await second.runs(2)
            assert [a.get("reason", "") for a in status["attempts"]] == ["PodNotFound", ""]
            assert [a["number"] for a in status["attempts"]] == [1, 2]
            assert second.pod(1) is None
            await system.settle()


async def test_a_kill_between_the_ledgers_of_two_gpus_leaves_no_allocation(
    system: System,
) -> None:
    """The next attempt is allocated on one GPU, and the last is not yet released on the other."""
    async with system.nodes(2):
        async with system.operator():
            partition = await system.partition(gpus=2)
            first = await system.job("first", partition, gpuMemory="30Gi", sim=LONG)
            second = await system.job("second", partition, gpuMemory="30Gi", sim=LONG)
            third = await system.job("third", partition, gpuMemory="30Gi", sim=LONG)
            await first.runs()
            await second.runs()
            await third.waits("InsufficientMemory")
        # As if the operator had allocated twice, and had been killed each time.
        for attempt, server in enumerate(system.servers(partition), start=1):
            await allocate_by_hand(system, third, server, attempt=attempt)
        async with system.operator():
            await system.history.until(
                lambda: all(
                    third.uid not in server["status"]["allocations"]
                    for server in system.servers(partition)
                )
            )
            await first.delete()
            status = await third.runs(3)
            assert [a["number"] for a in status["attempts"]] == [2, 3]
            await system.settle()


async def test_the_uids_of_pods_are_written_down(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="8Gi", sim=LONG)
        status = await job.runs()
        assert status["attempts"][0]["podUID"] == job.pod()["metadata"]["uid"]  # type: ignore[index]
        (server,) = system.servers(partition)
        uids = {p["metadata"]["name"]: p["metadata"]["uid"] for p in system.history.all("pods")}
        assert server["status"]["podUID"] == uids[f"{partition}-0"]
