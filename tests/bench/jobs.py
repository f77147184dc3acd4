"""Partita with SharedGPUJobs, and with batch/v1 Jobs whose Pods have claims.

The operator runs with the rights and behind the admission policies of `manifests/base`. Its agents
are simulated: they read the objects of each Pod, and report no usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bench.client import Client, Json
from bench.shape import CLASSES, RUN_SECONDS, JobClass, job, partition
from bench.stage import Plane, install_operator, jobs_path, make_partitions
from bench.subject import Subject
from partita.constants import ALLOCATION_GATE
from partita.models.device_class import device_class_of

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["DRA", "BatchJobs", "ClaimJobs", "SharedJobs", "make_claim_template"]


DRA = "/apis/resource.k8s.io/v1"


class SharedJobs(Subject):
    """SharedGPUJobs."""

    name = "Partita, SharedGPUJobs"
    peer = False
    watched = jobs_path()
    module = "partita"

    @override
    async def install(self, plane: Plane, api: Client, stack: ExitStack) -> dict[str, int]:
        return {"operator": await install_operator(plane, api, stack, self.module)}

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        await make_partitions(api, map(partition, namespaces))

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        kind: JobClass = work.size
        lasts = {RUN_SECONDS: f"{kind.seconds:g}"}
        body = job(work.name, work.namespace, f"{kind.units}Gi", lasts, priority=kind.priority)
        return jobs_path(work.namespace), body

    @override
    def ended(self, job: Json) -> bool | None:
        status = job.get("status") or {}
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return None
        return status["phase"] == "Succeeded" and len(status["attempts"]) == 1

    @override
    def admitted(self, job: Json) -> float:
        booked = job["status"]["attempts"][0]["bookedTime"]
        return datetime.fromisoformat(booked).timestamp()


class BatchJobs(Subject):
    """What subjects with batch/v1 Jobs share."""

    watched = "/apis/batch/v1/jobs"

    @override
    def ended(self, job: Json) -> bool | None:
        conditions = job.get("status", {}).get("conditions", ())
        ends = {one["type"] for one in conditions if one["status"] == "True"}
        return True if "Complete" in ends else False if "Failed" in ends else None

    @staticmethod
    def batch_job(work: Work, labels: Json, resources: Json, **spec: Any) -> tuple[str, Json]:
        """Return where to create a Job of one Pod, and the Job, with more of the Pod's spec."""
        container = {"name": "main", "image": "bench", "resources": resources}
        template = {
            "metadata": {"annotations": {RUN_SECONDS: f"{work.size.seconds:g}"}},
            "spec": {"restartPolicy": "Never", "containers": [container], **spec},
        }
        meta = {"name": work.name, "labels": labels}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
        path = f"/apis/batch/v1/namespaces/{work.namespace}/jobs"
        return path, body | {"spec": {"template": template}}


class ClaimJobs(BatchJobs, SharedJobs):
    """batch/v1 Jobs whose Pods wait for their claims behind the gate."""

    name = "Partita, Jobs with claims"
    watched = BatchJobs.watched

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        await super().prepare(api, namespaces, gpus)
        for one in CLASSES:
            body = {"metadata": {"name": one.name}, "value": one.priority}
            await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
            for name in namespaces:
                requests = {"memory": f"{one.units}Gi"}
                await make_claim_template(api, name, one.name, device_class_of(name), requests)

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        claim = {"name": "gpu", "resourceClaimTemplateName": work.size.name}
        return self.batch_job(
            work,
            {},
            {"claims": [{"name": "gpu"}]},
            priorityClassName=work.size.name,
            resourceClaims=[claim],
            schedulingGates=[{"name": ALLOCATION_GATE}],
        )


async def make_claim_template(
    api: Client, namespace: str, name: str, device_class: str, requests: Json
) -> None:
    """Make a template of claims for a part of one device."""
    exactly = {"deviceClassName": device_class, "capacity": {"requests": requests}}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    body = {"metadata": {"name": name}, "spec": {"spec": spec}}
    await api.post(f"{DRA}/namespaces/{namespace}/resourceclaimtemplates", body)
