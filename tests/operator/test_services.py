"""Services: more memory in place after out-of-memory, idle Pods, rollouts, and budgets.

A GPU has 40 GiB, of which 37.2 GiB are allocatable. Services may have 70 % of that, 26.0 GiB.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from partita.reconcile.claims import claim_reconciler
from support.builders import seconds
from support.history import GROUP_PATH
from support.operator import System
from support.services import deploy, ran_out_of_memory, reports_idle
from support.workloads import Workload, delete, submit

Body = dict[str, Any]
LONG_AGO = datetime.now(UTC) - timedelta(hours=2)


async def refused(system: System, application: str) -> str:
    """Return the memory with which an application ran out, as its profile has it."""
    path = f"{GROUP_PATH}/namespaces/{system.namespace}/applicationprofiles"
    found = (await system.api.get(path)).ok().body["items"]
    return "".join(
        p["spec"].get("refused", "") for p in found if p["spec"]["application"] == application
    )


def events(workload: Workload, reason: str) -> list[str]:
    return [said for why, said in workload.system.history.events(workload.name) if why == reason]


async def protect(system: System, app: str) -> str:
    """Create a budget that allows no eviction of a Deployment's Pods."""
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
    async def test_the_slice_of_a_service_grows_in_place(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            service = await deploy(system, "serve", partition, memory="4Gi")
            pod = await service.running()
            await ran_out_of_memory(pod)
            await pod.until(lambda w: [entry["memory"] for entry in w.entries] == ["6Gi"])
            await pod.until(lambda w: w.status.startswith("Allocated: 6.0 GiB"))
            assert await refused(system, "Deployment/serve") == "4Gi"
            await pod.until(lambda w: events(w, "MemoryRaised"))
            # The container that was restarted before the agent had changed its limits.
            await ran_out_of_memory(pod, started=1)
            await ran_out_of_memory(pod, started=30)
            await pod.until(lambda w: [entry["memory"] for entry in w.entries] == ["9Gi"])
            sizes = [
                entry["memory"]
                for version in system.history.versions("gpuservers", f"{partition}-0")
                for uid, entry in version.get("status", {}).get("allocations", {}).items()
                if uid == pod.uid
            ]
            assert sorted(set(sizes)) == ["4Gi", "6Gi", "9Gi"]
            assert service.pods[0]["metadata"]["uid"] == pod.pod["metadata"]["uid"]
            await service.remove()

    async def test_it_grows_no_more_often_than_the_partition_says(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition(outOfMemory={"limit": 1, "growthPercent": 100})
            await system.ready(partition)
            service = await deploy(system, "serve", partition, memory="4Gi")
            pod = await service.running()
            await ran_out_of_memory(pod)
            await pod.until(lambda w: [entry["memory"] for entry in w.entries] == ["8Gi"])
            await ran_out_of_memory(pod, started=30)
            await pod.waits("OutOfMemory", "with 8.0 GiB, and gets no more")
            assert [entry["memory"] for entry in pod.entries] == ["8Gi"]
            await service.remove()

    async def test_services_together_stay_within_their_share(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            service = await deploy(system, "serve", partition, memory="20Gi")
            pod = await service.running()
            await ran_out_of_memory(pod)
            await pod.waits("OutOfMemory", "services.memoryPercent 70")
            await system.change_partition(partition, services={"memoryPercent": 90})
            await pod.until(lambda w: [entry["memory"] for entry in w.entries] == ["30Gi"])
            await service.remove()

    async def test_a_full_gpu_lets_it_wait_for_room(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            other = await submit(system, "train", partition, memory="25Gi")
            await other.allocated()
            await other.bind()
            service = await deploy(system, "serve", partition, memory="10Gi")
            pod = await service.running()
            await ran_out_of_memory(pod)
            await pod.waits("OutOfMemory", "it needs 5.0 GiB more")
            await other.end()
            await pod.until(lambda w: [entry["memory"] for entry in w.entries] == ["15Gi"])
            await service.remove()

    async def test_it_moves_to_another_gpu_that_has_room(
        self, system: System, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claim_reconciler, "PROTECTED_FOR", seconds(0.5))
        async with system.running(1, 1):
            partition = await system.partition(gpus=2)
            await system.ready(partition, gpus=2)
            service = await deploy(system, "serve", partition, memory="10Gi")
            pod = await service.running()
            gpu = pod.allocation["devices"]["results"][0]["pool"]
            (term,) = pod.allocation["nodeSelector"]["nodeSelectorTerms"]
            (node,) = term["matchFields"][0]["values"]
            here = {"nodeSelector": {"kubernetes.io/hostname": node}}
            other = await submit(system, "train", partition, memory="25Gi", **here)
            await other.allocated()
            await other.bind()
            assert other.allocation["devices"]["results"][0]["pool"] == gpu
            budget = await protect(system, "serve")
            await ran_out_of_memory(pod)
            await pod.until(lambda w: events(w, "NotEvicted"))
            assert "deletionTimestamp" not in pod.now("pods")["metadata"]
            (await system.api.delete(budget)).ok()
            await pod.until(lambda w: not w.now("pods"))
            moved = await service.running()
            assert moved.allocation["devices"]["results"][0]["pool"] != gpu
            assert [entry["memory"] for entry in moved.entries] == ["15Gi"]
            await service.remove()
            await delete(other)

    async def test_the_next_pod_of_a_batch_job_gets_more(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            notes = {"application": "train"}
            first = await submit(system, "first", partition, memory="4Gi", annotations=notes)
            await first.allocated()
            await first.bind()
            ended = {"exitCode": 1, "message": "CUDA out of memory", "reason": "Error"}
            container = {"name": "main", "image": "i", "imageID": "", "restartCount": 0}
            container |= {"ready": False, "state": {"terminated": ended}}
            status = {"phase": "Failed", "containerStatuses": [container]}
            await first.patch("pods", {"status": status}, "/status")
            await first.until(lambda w: not w.entries)
            assert await refused(system, "train") == "4Gi"
            second = await submit(system, "second", partition, memory="4Gi", annotations=notes)
            await second.allocated()
            assert [entry["memory"] for entry in second.entries] == ["6Gi"]
            await delete(second)


class TestRollout:
    async def test_a_surge_pod_without_room_is_told_what_to_write(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition()
            await system.ready(partition)
            service = await deploy(system, "serve", partition, memory="20Gi")
            old = await service.running()
            template = {"metadata": {"annotations": {"version": "2"}}}
            await service.change(template=template)
            _, new = await service.workloads(2)
            await new.waits("NoRoomForSurge", "maxSurge: 0", old.name, "Deployment serve")
            rolling = {"type": "RollingUpdate"}
            rolling |= {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
            await service.change(strategy=rolling)
            await old.until(lambda w: not w.now("pods"))
            await new.allocated()
            await service.remove()


class TestIdle:
    async def test_an_idle_workload_is_reported_once_and_kept(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition(idle={"after": "1h"})
            (server,) = await system.ready(partition)
            pod = await (service := await deploy(system, "notebook", partition)).running()
            await reports_idle(system, server["metadata"]["name"], pod, LONG_AGO)
            await pod.waits("Idle", "has run no kernel since")
            waits = await submit(system, "waits", partition, memory="35Gi")
            await waits.waits("BehindServices")
            assert "deletionTimestamp" not in pod.now("pods")["metadata"]
            await reports_idle(system, server["metadata"]["name"], pod, datetime.now(UTC))
            await pod.until(lambda w: w.status.startswith("Allocated: "))
            assert len(events(pod, "Idle")) == 1
            await delete(waits)
            await service.remove()

    async def test_an_idle_workload_makes_room_for_one_that_waits(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition(idle={"after": "1h", "action": "Evict"})
            (server,) = await system.ready(partition)
            name = server["metadata"]["name"]
            pod = await (service := await deploy(system, "notebook", partition)).running()
            await reports_idle(system, name, pod, LONG_AGO)
            await pod.waits("Idle")
            fits = await submit(system, "fits", partition, memory="8Gi")
            await fits.allocated()
            assert "deletionTimestamp" not in pod.now("pods")["metadata"]
            waits = await submit(system, "waits", partition, memory="25Gi")
            await pod.until(lambda w: any("needs room" in said for said in events(w, "Idle")))
            await pod.until(lambda w: not w.now("pods"))
            await waits.allocated()
            await delete(waits)
            await delete(fits)
            await service.remove()

    async def test_a_budget_protects_an_idle_workload(self, system: System) -> None:
        async with system.running(1):
            partition = await system.partition(idle={"after": "1h", "action": "Evict"})
            (server,) = await system.ready(partition)
            pod = await (service := await deploy(system, "notebook", partition)).running()
            await protect(system, "notebook")
            await reports_idle(system, server["metadata"]["name"], pod, LONG_AGO)
            waits = await submit(system, "waits", partition, memory="35Gi")
            await pod.until(lambda w: events(w, "NotEvicted"))
            await waits.waits("BehindServices")
            assert "deletionTimestamp" not in pod.now("pods")["metadata"]
            await delete(waits)
            await service.remove()
