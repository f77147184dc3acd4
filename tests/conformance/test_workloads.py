"""Deployments, ReplicaSets, StatefulSets and Jobs: their defaults, rules, scale and columns."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.objects import TABLE, job, path, workload
from support.api import Api

NO_REPLICAS = {"replicas": 0}
"""For which the controllers create nothing."""


@pytest.mark.parametrize(
    ("plural", "defaults"),
    [
        (
            "deployments",
            {
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                },
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
        ),
        ("replicasets", {}),
        (
            "statefulsets",
            {
                "podManagementPolicy": "OrderedReady",
                "revisionHistoryLimit": 10,
                "persistentVolumeClaimRetentionPolicy": {
                    "whenDeleted": "Retain",
                    "whenScaled": "Retain",
                },
            },
        ),
    ],
)
async def test_a_new_object_has_defaults(
    api: Api, namespace: str, plural: str, defaults: dict[str, Any]
):
    body = (await api.post(path(namespace, plural), workload(plural, **NO_REPLICAS))).ok().body
    assert {key: body["spec"][key] for key in defaults} == defaults
    pod = body["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["schedulerName"]) == ("Always", "default-scheduler")
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert body["metadata"]["generation"] == 1
    assert body["status"].get("replicas", 0) == 0


async def test_a_job_selects_the_pods_of_its_uid(api: Api, namespace: str):
    body = (await api.post(path(namespace, "jobs"), job(suspend=True))).ok().body
    uid, spec = body["metadata"]["uid"], body["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    # The real server shares one map between the Job and its template.
    assert (
        body["metadata"]["labels"]
        == spec["template"]["metadata"]["labels"]
        == {
            "app": "a",
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "w",
            "controller-uid": uid,
            "job-name": "w",
        }
    )
    assert {key: spec[key] for key in ("completions", "parallelism", "backoffLimit")} == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
    }
    assert (spec["completionMode"], spec["podReplacementPolicy"]) == (
        "NonIndexed",
        "TerminatingOrFailed",
    )


@pytest.mark.parametrize(
    ("plural", "columns", "cells"),
    [
        ("deployments", ["Ready", "Up-to-date", "Available"], ["0/0", 0, 0]),
        ("jobs", ["Status", "Completions", "Duration"], ["Suspended", "0/1", ""]),
    ],
)
async def test_are_printed(
    api: Api, namespace: str, plural: str, columns: list[str], cells: list[Any]
):
    body = job(suspend=True) if plural == "jobs" else workload(plural, **NO_REPLICAS)
    (await api.post(path(namespace, plural), body)).ok()
    if plural == "jobs":
        await api.until(path(namespace, plural, "w"), lambda b: b["status"].get("conditions"))
    table = (await api.get(path(namespace, plural), accept=TABLE)).ok().body
    shown = [c["name"] for c in table["columnDefinitions"] if c["priority"] == 0]
    assert shown == ["Name", *columns, "Age"]
    row = table["rows"][0]["cells"]
    assert [str(cell) for cell in row[1 : len(columns) + 1]] == [str(cell) for cell in cells]
