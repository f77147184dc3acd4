"""Pods for tests of the cluster, and how they went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.api import Api

__all__ = ["finished", "logs", "phase", "restricted_namespace", "restricted_pod"]

Json = dict[str, Any]


def phase(pod: Json) -> str:
    """Return a Pod's phase."""
    return str(pod.get("status", {}).get("phase"))


async def finished(api: Api, namespace: str, name: str) -> int:
    """Return the exit code of a Pod's only container, once it has ended."""
    pod = await api.until(
        f"/api/v1/namespaces/{namespace}/pods/{name}",
        lambda pod: phase(pod) in {"Succeeded", "Failed"},
    )
    return int(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])


async def logs(api: Api, namespace: str, name: str, **params: str) -> str:
    """Return what a Pod's container has said."""
    answer = await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}/log", **params)
    return str(answer.ok().body)


async def restricted_namespace(api: Api) -> str:
    """Make a namespace whose Pods the API server holds to Pod Security `restricted`."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"metadata": {"generateName": "restricted-", "labels": labels}}
    made = await api.post("/api/v1/namespaces", body)
    return str(made.ok().body["metadata"]["name"])


def restricted_pod(name: str, image: str, command: Sequence[str]) -> Json:
    """Return a Pod that `restricted` admits, of user 1000."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": list(command),
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
