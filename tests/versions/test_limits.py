"""Pods with the limit partita.dev/gpu-memory, which this version cannot replace by a claim."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from manifests.rendering import ROOT
from support.kubectl import Kubectl
from support.polling import until
from versions.cluster import Cluster

LIMITS = str(ROOT / "manifests" / "limits")

SIX = {"partita.dev/gpu-memory": "6Gi"}


@pytest.fixture
async def policies(cluster: Cluster, kubectl: Kubectl) -> AsyncIterator[None]:
    """As much of `manifests/limits` as the version serves."""

    async def until_answer(status: int) -> None:
        async def reached() -> bool:
            tried = await cluster.post_pod_with_limits("tried", SIX, dryRun="All")
            return tried.status == status

        await until(reached, what=f"the API server does not answer {status}")

    applied = await kubectl("apply", "-k", LIMITS)
    assert 'no matches for kind "MutatingAdmissionPolicy"' in applied.err
    await until_answer(422)
    yield
    await kubectl("delete", "-k", LIMITS, "--ignore-not-found")
    await until_answer(201)


async def test_without_the_policies_the_pod_says_what_to_write_instead(cluster: Cluster):
    (await cluster.post_pod_with_limits("serve", SIX)).ok()
    said = await cluster.event("serve", "LimitNotReplaced")
    assert "install manifests/limits (Kubernetes 1.36 or newer)" in said
    assert "resourceClaimTemplateName: partita-6442450944" in said


async def test_with_them_it_is_refused(cluster: Cluster, policies: None):
    answer = await cluster.post_pod_with_limits("serve", SIX)
    assert answer.status == 422
    assert "needs Kubernetes 1.36 or newer" in answer.body["message"]
    assert "write resourceClaims" in answer.body["message"]
