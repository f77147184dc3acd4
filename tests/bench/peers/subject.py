"""What `batch` compares: who runs jobs, how it is set up, and how a job looks to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Protocol

from bench.peers.plane import PeersPlane
from bench.scale.client import Client
from bench.scale.shape import RUN_SECONDS, JobClass

__all__ = ["BatchJobs", "Subject"]

Json = dict[str, Any]


class Subject(Protocol):
    """One way to run jobs.

    Attributes
    ----------
    name
        As the report calls it.
    component
        The name of its own process.
    """

    name: str
    component: str

    async def install(self, plane: PeersPlane, api: Client, stack: ExitStack) -> int:
        """Start its process until the stack is closed; return the id. There are no nodes yet."""

    async def prepare(self, api: Client, names: list[str]) -> None:
        """Make a queue or partition for each of these namespaces."""

    def path(self, namespace: str = "") -> str:
        """Return where its jobs are, of one namespace or of all."""

    def job(self, name: str, namespace: str, kind: JobClass) -> Json:
        """Return a job."""

    def ended(self, job: Json) -> bool | None:
        """Return whether a job has ended well or badly, None while it has not ended."""


class BatchJobs:
    """What subjects with batch/v1 Jobs share."""

    def path(self, namespace: str = "") -> str:
        """Return where Jobs are, of one namespace or of all."""
        return f"/apis/batch/v1/{f'namespaces/{namespace}/' if namespace else ''}jobs"

    def ended(self, job: Json) -> bool | None:
        """Return whether a Job has ended well or badly, None while it has not ended."""
        conditions = job.get("status", {}).get("conditions", ())
        ends = {one["type"] for one in conditions if one["status"] == "True"}
        return True if "Complete" in ends else False if "Failed" in ends else None

    @staticmethod
    def batch_job(name: str, kind: JobClass, labels: Json, resources: Json, **spec: Any) -> Json:
        """Return a Job of one Pod, with more of the Pod's spec."""
        container = {"name": "main", "image": "bench", "resources": resources}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "template": {
                    "metadata": {"annotations": {RUN_SECONDS: f"{kind.seconds:g}"}},
                    "spec": {"restartPolicy": "Never", "containers": [container], **spec},
                }
            },
        }
