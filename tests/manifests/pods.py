"""Pods that somebody makes where the admission policies hold."""

from __future__ import annotations

from typing import Any

from support.api import Answer, Api
from support.builders import owner

__all__ = [
    "CORE",
    "OURS",
    "OWNER",
    "claim",
    "env",
    "job_path",
    "owner_of",
    "pod",
    "refused",
    "submitted",
]

CORE = "/api/v1/namespaces"
OURS = "shared.gpu.partita.dev"
"""One of our device classes."""

OWNER = owner("SharedGPUJob", "job", "00000000-0000-4000-8000-000000000000")
"""A job that does not exist: the garbage collector deletes Pods of it, unless `dryRun` is set."""


def pod(name: str = "own", **container: Any) -> dict[str, Any]:
    """A Pod that somebody makes."""
    main = {"name": "main", "image": "example.org/image:1", **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [main], "automountServiceAccountToken": False},
    }


def claim(name: str, device_class: str = OURS, **request: Any) -> dict[str, Any]:
    """A claim of one device."""
    exactly = {"deviceClassName": device_class, **request}
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def env(name: str) -> list[dict[str, str]]:
    """The variables of a container, of which one has this name."""
    return [{"name": "HOME", "value": "/"}, {"name": name, "value": "all"}]


def job_path(namespace: str) -> str:
    """Path of the job that `submitted` makes."""
    return f"/apis/partita.dev/v1alpha1/namespaces/{namespace}/sharedgpujobs/train"


async def submitted(api: Api, namespace: str) -> dict[str, Any]:
    """Submit a job; return it."""
    job = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": "train", "annotations": {"partita.dev/retry": "1"}},
        "spec": {"partition": "gpus", "template": {"spec": pod()["spec"]}},
    }
    return dict((await api.post(job_path(namespace).removesuffix("/train"), job)).ok().body)


def owner_of(job: dict[str, Any]) -> dict[str, Any]:
    """The reference to a job in its Pods."""
    return OWNER | {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}


def refused(answer: Answer, said: str) -> None:
    """Check that a policy refuses a request and says why."""
    assert answer.status == 403, answer.body
    assert said in answer.body["message"]
