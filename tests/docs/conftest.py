"""The clusters on which the commands of pages run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio

from docs.pages import ROOT
from docs.runner import shell
from partita_testcluster.cli.local_cluster import sandbox
from partita_testcluster.nodes import NodeSpec

__all__ = ["new_cluster", "shared_cluster"]

SPEED = 20.0
"""Simulated seconds in a second."""
MACHINES = [NodeSpec(f"sim-{i}", 2, 24 << 30, "NVIDIA A10", 72) for i in range(2)]
"""The machines of `partita demo`."""


EXAMPLES_AND_A_JOB = """
kubectl apply -f examples/
kubectl apply -f - <<EOF
apiVersion: partita.dev/v1alpha1
kind: SharedGPUJob
metadata: {name: train, namespace: team-vision}
spec:
  partition: shared
  gpuMemory: 1Gi
  template:
    metadata: {annotations: {sim.partita.dev/duration: 10h}}
    spec: {containers: [{name: train, image: train}]}
EOF
kubectl -n team-vision wait --timeout=80s --for=condition=Scheduled sharedgpujob/train
kubectl -n team-vision wait --timeout=80s --for=jsonpath='{.status.phase}'=Running sgj/train
"""
"""What pages find: jobs of the examples, and `train`, which runs on `shared-0`."""


@asynccontextmanager
async def new_cluster(folder: Path) -> AsyncIterator[Path]:
    """Start a cluster with the real operator and simulated nodes; yield its kubeconfig."""
    async with sandbox(folder, MACHINES, speed=SPEED) as box:
        yield box.kubeconfig
        box.check()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_cluster(tmp_path_factory) -> AsyncIterator[Path]:
    """One cluster for all pages that only read: with the examples, and a job that runs."""
    folder = tmp_path_factory.mktemp("cluster")
    async with new_cluster(folder) as kubeconfig:
        code, printed = await shell(EXAMPLES_AND_A_JOB, ROOT, kubeconfig)
        assert code == 0, printed
        yield kubeconfig
