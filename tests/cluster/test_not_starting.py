"""What keeps kubelet from starting a Pod: its GPU is given back, and the next job runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.jobs import Jobs, server_path
from cluster.pods import restricted_namespace, restricted_pod
from support.api import Api

Json = dict[str, Any]

STARTS_WITHIN = 20
"""Seconds of `podStartTimeout`."""
VOLUMES = {"volumes": [{"name": "v", "secret": {"secretName": "missing"}}]}
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


@dataclass(frozen=True)
class Way:
    """A way not to start.

    Attributes
    ----------
    reasons
        One of which the job's status gives.
    words
        What its message says.
    pod, container
        What the template has.
    """

    reasons: tuple[str, ...]
    words: str
    pod: Json = field(default_factory=dict)
    container: Json = field(default_factory=dict)


WAYS = {
    "image": Way(
        ("ErrImagePull", "ImagePullBackOff"),
        "localhost:9/none",
        container={"image": "localhost:9/none:1", "imagePullPolicy": "IfNotPresent"},
    ),
    "missing Secret": Way(("ContainerCreating",), "Secret missing", VOLUMES, MOUNT),
    "missing ConfigMap": Way(
        ("CreateContainerConfigError",),
        'configmap "missing" not found',
        container={"envFrom": [{"configMapRef": {"name": "missing"}}]},
    ),
}


@pytest.fixture
async def others(api: Api, shared: str) -> AsyncIterator[Jobs]:
    """The jobs of somebody else in the same partition."""
    namespace = await restricted_namespace(api)
    yield Jobs(api, namespace, shared)
    await api.delete(f"/api/v1/namespaces/{namespace}")


async def memory_of_most_of_a_gpu(api: Api) -> str:
    """Return what only one job of a GPU can have."""
    found = (await api.get(server_path())).ok().body["items"]
    return str(int(found[0]["status"]["memory"].removesuffix("Mi")) * 6 // 10) + "Mi"


def job(name: str, partition: str, memory: str, way: Way) -> Json:
    spec = restricted_pod(name, "localhost/job:test", ["fake-cuda", "alloc:10"])["spec"]
    del spec["restartPolicy"]
    (main,) = spec["containers"]
    spec = {**spec, **way.pod, "containers": [{**main, **way.container}]}
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": name},
        "spec": {
            "partition": partition,
            "gpuMemory": memory,
            "podStartTimeout": f"{STARTS_WITHIN}s",
            "retry": {"notStarted": {"limit": 0}},
            "template": {"spec": spec},
        },
    }


@pytest.mark.parametrize("name", WAYS)
async def test_its_gpu_is_given_back_and_the_next_job_runs(
    api: Api, jobs: Jobs, others: Jobs, shared: str, name: str
):
    way, memory = WAYS[name], await memory_of_most_of_a_gpu(api)
    for number in range(2):  # one for each GPU
        body = job(f"stuck-{number}", shared, memory, way)
        (await api.post(jobs.path(), body)).ok()
    await jobs.until(
        "stuck-0", lambda s: s.get("reason") in way.reasons and way.words in s.get("message", "")
    )
    await others.submit("next", "alloc:10", memory=memory)
    await others.reaches("next", "Succeeded")
    ended = await jobs.reaches("stuck-0", "Failed")
    assert (ended["reason"], ended["attempts"][0]["outcome"]) == ("NotStarted",) * 2
