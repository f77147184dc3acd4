"""Pods with the limit partita.dev/gpu-memory, on versions that can replace it and on others."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from manifests.rendering import ROOT
from support.kubectl import Kubectl
from support.polling import until
from versions.cluster import Cluster

LIMITS = str(ROOT / "manifests" / "limits")

NOT_SERVED = ("1.34", "1.35")
"""Versions without MutatingAdmissionPolicy in admissionregistration.k8s.io/v1."""

SIX = {"partita.dev/gpu-memory": "6Gi"}


@pytest.fixture
async def limits(version: str, cluster: Cluster, kubectl: Kubectl) -> AsyncIterator[None]:
    """The policies that replace limits, as far as the version serves them."""

    async def until_limits_are(treated: str) -> None:
        async def reached() -> bool:
            return await cluster.tries_limits(SIX) == treated

        await until(reached, what=f"the API server does not {treated} limits")

    applied = await kubectl("apply", "-k", LIMITS)
    if version in NOT_SERVED:
        assert 'no matches for kind "MutatingAdmissionPolicy"' in applied.err
        await until_limits_are("refuse")
    else:
        applied.ok()
        await until_limits_are("replace")
    yield
    await kubectl("delete", "-k", LIMITS, "--ignore-not-found")
    await until_limits_are("keep")


async def test_a_limit_becomes_a_slice_or_is_refused(version: str, cluster: Cluster, limits: None):
    answer = await cluster.post_pod_with_limits("serve", SIX)
    if version in NOT_SERVED:
        assert answer.status == 422
        assert "needs Kubernetes 1.36 or newer" in answer.body["message"]
        assert "write resourceClaims" in answer.body["message"]
    else:
        answer.ok()
        claim = await cluster.bound("serve")
        (config,) = claim["status"]["allocation"]["devices"]["config"]
        assert config["opaque"]["parameters"]["memory"] == "6Gi"


async def test_without_the_policies_the_pod_says_what_to_write_instead(cluster: Cluster):
    (await cluster.post_pod_with_limits("serve", SIX)).ok()
    said = await cluster.event("serve", "LimitNotReplaced")
    assert "install manifests/limits (Kubernetes 1.36 or newer)" in said
    assert "resourceClaimTemplateName: partita-6442450944" in said
