"""Writes of built-in kinds: Pods, claims and Events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.writes.variant import (
    CREATE,
    IGNORE,
    METADATA_ONLY,
    OBJECTS,
    PUT,
    Comparison,
    Json,
    Variant,
    builtin,
)

__all__ = ["builtins"]

_RESOURCES = "apis/resource.k8s.io/v1"
_FINALIZER = "resource.kubernetes.io/delete-protection"
_LABELS = {
    "partita.dev/component": "job",
    "partita.dev/partition": "partition-0",
    "partita.dev/job": "training-run-1",
    "partita.dev/attempt": "1",
}
_OWNER = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "SharedGPUJob",
    "name": "training-run-1",
    "uid": "5e1b4c1e-9d57-3c8f-8a1b-2c3d4e5f6071",
    "controller": True,
    "blockOwnerDeletion": True,
}
_AMOUNTS = {"gpu.partita.dev/memory": "1Gi", "gpu.partita.dev/threads": "100"}
_CLAIM: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"labels": _LABELS, "ownerReferences": [_OWNER]},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "gpu",
                    "exactly": {
                        "deviceClassName": "partition-0.partita.dev",
                        "capacity": {"requests": _AMOUNTS},
                    },
                }
            ]
        }
    },
}
_CONFIG_MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}


def _event(_: Json, number: int) -> Json:
    stamp = "2026-11-24T08:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {**_OWNER, "namespace": "default", "controller": None},
        "reason": "Scheduled",
        "message": f"attempt 1 gets 1 GiB on partition-0-abcde (node node-{number}), chosen by fifo",
        "type": "Normal",
        "source": {"component": "partita"},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _pod(_: Json, number: int) -> Json:
    claim = {"name": "partita-gpu-0", "resourceClaimName": f"claim-{number}.partita.dev"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": _LABELS, "ownerReferences": [_OWNER]},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [claim],
            "containers": [
                {
                    "name": "main",
                    "image": "bench",
                    "resources": {"claims": [{"name": "partita-gpu-0"}]},
                }
            ],
        },
    }


def _ignoring(variant: Variant) -> Variant:
    return replace(variant, name="ignore", query=IGNORE)


def _metadata_only(variant: Variant) -> Variant:
    return replace(variant, name="metadata", accept=METADATA_ONLY)


_ALLOCATION: Json = {
    "allocationTimestamp": "2026-11-24T08:00:00Z",
    "devices": {
        "results": [
            {
                "request": "gpu",
                "driver": "gpu.partita.dev",
                "pool": "partition-0-0",
                "device": "gpu",
                "shareID": "5e1b4c1e-9d57-4c8f-8a1b-2c3d4e5f6071",
                "consumedCapacity": _AMOUNTS,
            }
        ],
        "config": [
            {
                "source": "FromClaim",
                "requests": ["gpu"],
                "opaque": {
                    "driver": "gpu.partita.dev",
                    "parameters": {
                        "apiVersion": "gpu.partita.dev/v1alpha1",
                        "kind": "SliceParameters",
                        "gpuServer": "partition-0-0",
                        "gpu": "GPU-00000000-0000-4000-8000-000000000000",
                        "memory": "1Gi",
                        "threadPercent": 100,
                        "processes": 1,
                    },
                },
            }
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
        ]
    },
}


def _allocated(_: Json, number: int) -> Json:
    """Allocate a claim and take the allocation back, in turn: an allocation never changes."""
    return {"status": {"allocation": None if number // OBJECTS % 2 else _ALLOCATION}}


def _claim_status(name: str, **more: Any) -> Variant:
    return builtin(
        name, _RESOURCES, "resourceclaims", _CLAIM, _allocated, subresource="status", **more
    )


def _deleted(name: str, **metadata: Any) -> Variant:
    made = {**_CLAIM, "metadata": {**_CLAIM["metadata"], **metadata}}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    return builtin(
        name, _RESOURCES, "resourceclaims", made, lambda *_: options, how=("DELETE", CREATE[1])
    )


def _create(name: str, version: str, plural: str, made: Any) -> Variant:
    body = made if callable(made) else lambda *_: made
    return builtin(name, version, plural, {}, body, how=CREATE)


def builtins() -> Iterator[Comparison]:
    """Return the comparisons of writes of built-in kinds."""
    event = _create("Event", "api/v1", "events", _event)
    config_map = _create("ConfigMap", "api/v1", "configmaps", _CONFIG_MAP)
    pod = _create("Pod", "api/v1", "pods", _pod)
    claim = _create("ResourceClaim", _RESOURCES, "resourceclaims", _CLAIM)
    yield Comparison("create: ConfigMap / Event", config_map, event)
    yield Comparison("create: ResourceClaim / Pod", claim, pod)
    yield Comparison(
        "claim status: merge patch / PUT", _claim_status("merge"), _claim_status("put", how=PUT)
    )
    yield Comparison(
        "claim status: unknown fields reported / ignored",
        _claim_status("warn"),
        _ignoring(_claim_status("ignore")),
    )
    yield Comparison(
        "claim: delete with a finalizer / without",
        _deleted("finalizer", finalizers=[_FINALIZER]),
        _deleted("none"),
    )
    yield Comparison("Event: unknown fields reported / ignored", event, _ignoring(event))
    yield Comparison("Pod: unknown fields reported / ignored", pod, _ignoring(pod))
    yield Comparison("Pod: whole answer / only metadata", pod, _metadata_only(pod))
    yield Comparison("Event: whole answer / only metadata", event, _metadata_only(event))
    yield Comparison(
        "Event: create / count up",
        event,
        builtin(
            "count", "api/v1", "events", _event({}, 0), lambda _, number: {"count": number + 2}
        ),
    )
