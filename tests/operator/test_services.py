"""Services: more memory in place after out-of-memory, idle Pods, rollouts, and budgets.

A GPU has 40 GiB, of which 37.2 GiB are allocatable. Services may have 70 % of that, 26.0 GiB.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clusters import ApiServer
from support.crashes import kill_while
from support.faults import When
from support.history import GROUP_PATH
from support.operator_process import Forge
from support.polling import TIMEOUT
from support.proxy import FaultProxy
from support.requests import Request
from support.services import Service, deploy
from support.system import System
from support.workloads import Workload, delete, submit


@pytest.fixture(autouse=True)
def at_once(system: System) -> None:
    """Count every container that started after its memory was raised, and evict again soon."""
    system.set_times(limits_effective=3.0, protected=0.5, evict_again=0.1)


async def refused(system: System, application: str) -> str:
    """Return the memory with which an application ran out, as its profile has it."""
    path = f"{GROUP_PATH}/namespaces/{system.namespace}/applicationprofiles"
    found = (await system.api.get(path)).ok().body["items"]
    return "".join(
        p["spec"].get("refused", "") for p in found if p["spec"]["application"] == application
    )


def events(workload: Workload, reason: str) -> list[str]:
    return [said for why, said in workload.system.history.events(workload.name) if why == reason]


def restarts(workload: Workload) -> int:
    """Return how often the container of a ready Pod was restarted; -1 if it is not ready."""
    status = workload.now("pods").get("status", {})
    statuses = status.get("containerStatuses", [{"ready": False}])
    return int(statuses[0]["restartCount"]) if statuses[0]["ready"] else -1


def sizes(workload: Workload, partition: str) -> list[str]:
    """Return the amounts of memory that the ledger has had for a claim, in order."""
    versions = workload.system.history.versions("gpuservers", f"{partition}-0")
    ledgers = [version.get("status", {}).get("allocations", {}) for version in versions]
    found = [ledger[workload.uid]["memory"] for ledger in ledgers if workload.uid in ledger]
    return list(dict.fromkeys(found))


async def has(workload: Workload, memory: str, *, within: float = TIMEOUT) -> None:
    """Wait until the ledger has this memory for a claim."""
    await workload.until(
        lambda w: [entry["memory"] for entry in w.entries] == [memory], within=within
    )


async def evicted(workload: Workload, reason: str) -> None:
    """Wait until a Pod was evicted for a reason."""
    await workload.until(
        lambda w: any(said.startswith("it is evicted: ") for said in events(w, reason))
    )
    await workload.until(lambda w: not w.now("pods"))


async def protect(service: Service) -> str:
    """Create a budget that allows no eviction of a service's Pods."""
    system, app = service.system, service.name
    path = f"/apis/policy/v1/namespaces/{system.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": system.namespace},
        "spec": spec,
    }
    (await system.api.post(path, body)).ok()
    return f"{path}/{app}"


class TestOutOfMemory:
    async def test_it_moves_to_another_gpu_that_has_room(self, system: System) -> None:
        async with system.running(1, 1):
            partition = await system.ready_partition(gpus=2)
            blocks = await submit(system, "blocks", partition, memory="35Gi")
            (blocked,) = (await blocks.allocated())["devices"]["results"]
            full = await submit(system, "full", partition, memory="25Gi")
            await full.runs()
            service = await deploy(system, "serve", partition, memory="6Gi", uses="12Gi")
            (pod,) = await service.workloads()
            await pod.waits("OutOfMemory", "it needs 4.5 GiB more")
            assert len(events(pod, "MemoryRaised")) == 1
            budget = await protect(service)
            await delete(blocks)
            name = budget.rpartition("/")[2]
            await pod.until(
                lambda w: (
                    any(f"budget {name} " in said for said in events(w, "NotEvicted"))
                    and all(f"budget {name} " in e.get("notEvicted", "") for e in w.entries)
                )
            )
            assert "deletionTimestamp" not in pod.now("pods")["metadata"]
            (await system.api.delete(budget)).ok()
            await evicted(pod, "OutOfMemory")
            (moved,) = await service.workloads()
            await moved.runs()
            assert moved.allocation["devices"]["results"][0]["pool"] == blocked["pool"]
            assert [entry["memory"] for entry in moved.entries] == ["13824Mi"]
            await service.remove()
            await delete(full)


def counts(request: Request) -> bool:
    """Tell the writes that make a difference."""
    plurals = {"gpuservers", "pods", "resourceclaims", "applicationprofiles"}
    return request.is_write and request.resource in plurals


@pytest.mark.timeout(400)
async def test_killed_at_each_write_a_slice_grows_by_steps_and_only_the_idle_pod_ends(
    system: System, api_server: ApiServer, forge: Forge, tmp_path: Path
) -> None:
    async with FaultProxy(api_server, serial=True) as proxy, system.nodes(1):
        profiles = f"{GROUP_PATH}/namespaces/{system.namespace}/applicationprofiles"
        spec = {"application": "forgotten", "lastRun": "2020-01-01T00:00:00Z"}
        named = {"apiVersion": "partita.dev/v1alpha1", "kind": "ApplicationProfile"}
        body = named | {"metadata": {"name": "forgotten"}, "spec": spec}
        (await system.api.post(profiles, body)).ok()
        async with system.operator():
            partition = await system.ready_partition(idle={"after": "1s", "action": "Evict"})

        async def scenario() -> None:
            service = await deploy(system, "serve", partition, memory="4Gi", uses="7Gi")
            (pod,) = await service.workloads()
            await has(pod, "9Gi", within=150)
            await pod.until(lambda w: restarts(w) >= 2, within=150)
            await pod.until(lambda w: w.status.startswith("Allocated: 9.0 GiB"), within=150)
            lasts = {"restartPolicy": "Always", "sim": {"gpu": "0"}}
            idle = await submit(system, "notebook", partition, memory="10Gi", **lasts)
            await idle.until(lambda w: w.phase == "Running", within=150)
            waits = await submit(system, "waits", partition, memory="25Gi")
            await idle.until(lambda w: not w.now("pods"), within=150)
            await waits.until(lambda w: w.phase == "Running", within=150)
            assert sizes(pod, partition) == ["4Gi", "6Gi", "9Gi"]
            assert await refused(system, "Deployment/serve") == "6Gi"
            found = (await system.api.get(profiles)).ok().body["items"]
            assert "forgotten" not in [p["metadata"]["name"] for p in found]
            assert service.pods[0]["metadata"]["uid"] == pod.pod["metadata"]["uid"]
            await service.remove()
            await waits.end()
            for one in (pod, idle, waits):
                await one.until(lambda w: not w.entries, within=150)

        kills = await kill_while(
            scenario(), forge, proxy, tmp_path, counts, lives=(1,), when=When.AFTER
        )
        assert kills >= 8
