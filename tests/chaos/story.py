"""Histories that are told, to be judged."""

from __future__ import annotations

from typing import Any

from support.record import Body, Record, Version

__all__ = ["Story"]

JOB = "uid-train"
CREATED = "2026-01-01T00:00:00Z"


class Story:
    """A history that is told: each version gets the next number."""

    def __init__(self, partition: str = "single") -> None:
        self.record = Record()
        self.number = 0
        self.tell("gpupartitions", partition, {"spec": {"gpus": 1}})

    def take(self, plural: str, body: Body, kind: str = "MODIFIED") -> int:
        self.number += 1
        meta = {**body["metadata"], "resourceVersion": str(self.number)}
        version = Version(self.number, kind, {**body, "metadata": meta}, float(self.number))
        self.record.take(plural, version)
        return self.number

    def tell(
        self,
        plural: str,
        name: str,
        body: Body,
        *,
        kind: str = "MODIFIED",
        uid: str = "",
        **meta: Any,
    ) -> int:
        named = {"name": name, "uid": uid or f"uid-{name}", "creationTimestamp": CREATED}
        return self.take(plural, {**body, "metadata": {**named, **meta}}, kind)

    def server(self, *jobs: str, memory: str = "40Gi", **more: Any) -> int:
        entries = {
            f"claim-{job}": {
                "namespace": "red",
                "name": f"{job}-1.partita.dev",
                "job": job,
                "jobUID": f"uid-{job}",
                "pod": f"{job}-1",
                "podUID": "pod-1",
                "memory": "20Gi",
                "since": CREATED,
                **more,
            }
            for job in jobs
        }
        status = {"memory": memory, "allocations": entries}
        return self.tell(
            "gpuservers", "single-0", {"spec": {"partition": "single"}, "status": status}
        )

    def pod(
        self,
        phase: str = "Running",
        *,
        attempt: int = 1,
        kind: str = "MODIFIED",
        uid: str = "pod-1",
    ) -> int:
        return self.tell(
            "pods",
            f"train-{attempt}",
            {"status": {"phase": phase}},
            kind=kind,
            uid=uid,
            namespace="red",
            labels={"partita.dev/component": "job", "partita.dev/attempt": str(attempt)},
            annotations={"partita.dev/job-uid": JOB},
            ownerReferences=[{"kind": "SharedGPUJob"}],
        )

    def job(self, phase: str, *outcomes: str, name: str = "train", reason: str = "", **meta: Any):
        attempts = [
            {"number": n, "pod": f"{name}-{n}", "outcome": o}
            for n, o in enumerate(outcomes, start=1)
        ]
        status = {"phase": phase, "attempts": attempts, "reason": reason}
        return self.tell("sharedgpujobs", name, {"status": status}, namespace="red", **meta)
