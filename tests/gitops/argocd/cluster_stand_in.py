"""What a cluster would do with the objects that Argo CD brings: run the operator, and the jobs."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apiserver.processes import ServerProcess, ServerProcesses
from gitops.argocd.servers import Repository
from gitops.test_examples import REPOSITORY, ROOT
from partita.models.quantities import format_time
from support.api import Api
from support.clusters import ApiServer
from support.polling import TIMEOUT

__all__ = ["DEPLOYMENT", "GROUP", "ClusterStandIn", "write_repository"]

Body = dict[str, Any]

GROUP = "/apis/partita.dev/v1alpha1"
DEPLOYMENT = "/apis/apps/v1/namespaces/partita-system/deployments/partita-operator"
CONSOLE = "/apis/apps/v1/namespaces/partita-system/deployments/partita-console"
BUDGET = "/apis/policy/v1/namespaces/partita-system/poddisruptionbudgets/partita-operator"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/partita-system/leases"


def write_repository(folder: Path) -> Repository:
    """Commit the examples as they stand, but for the repository's own address."""
    repository = Repository(folder)
    for source in ("manifests/base", "manifests/overlays", "crds", "examples/gitops"):
        shutil.copytree(ROOT / source, folder / source)
    for file in (folder / "examples" / "gitops" / "argocd").iterdir():
        file.write_text(file.read_text().replace(REPOSITORY, repository.url))
    repository.commit("Share two GPUs")
    return repository


class ClusterStandIn:
    """The control plane's missing half: whatever runs what a Deployment and Pods say.

    The operator is the real one, with the Deployment's arguments and the rights of `manifests/`;
    the nodes are simulated, and the console is only said to run.
    """

    def __init__(self, api: Api, server: ApiServer, folder: Path) -> None:
        self.api = api
        self._server = server
        self._folder = folder
        self._processes = ServerProcesses()

    def stop(self) -> None:
        """End what was started."""
        self._processes.stop()

    async def get(self, path: str) -> Body | None:
        """Return an object, or None where there is none."""
        answer = await self.api.get(path)
        if answer.status == 404:
            return None
        body: Body = answer.ok().body
        return body

    async def until(self, path: str, holds: Any, *, seconds: float = TIMEOUT) -> Body:
        """Wait until an object is there and so."""
        return await self.api.until(path, holds, seconds)

    async def run_operator(self) -> None:
        """Run the Deployment once it is there, and say of all that they are available."""
        deployment = await self.until(DEPLOYMENT, lambda _: True)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        arguments = [a for a in container["args"] if not a.startswith("--health-port")]
        kubeconfig = self._server.kubeconfig_of("partita-operator")
        self._run("operator", *arguments, f"--kubeconfig={kubeconfig}")
        await self.until(LEASES, lambda leases: leases["items"])
        self._run(
            "nodes", "nodes", "--nodes=1", "--gpus=4", f"--kubeconfig={self._server.kubeconfig}"
        )
        for path in (CONSOLE, DEPLOYMENT):
            replicas = await self._available(path)
        now = format_time(datetime.now(UTC))
        allowed = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}
        budget = {
            "conditions": [{**allowed, "message": "", "lastTransitionTime": now}],
            "currentHealthy": replicas,
            "desiredHealthy": replicas - 1,
            "disruptionsAllowed": 1,
            "expectedPods": replicas,
            "observedGeneration": 1,
        }
        (await self.api.patch(f"{BUDGET}/status", {"status": budget})).ok()

    async def _available(self, path: str) -> int:
        """Say that all Pods of a Deployment run; return their number."""
        deployment = await self.until(path, lambda _: True)
        replicas: int = deployment["spec"]["replicas"]
        counts = dict.fromkeys(
            ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas
        )
        status = {**counts, "observedGeneration": deployment["metadata"]["generation"]}
        (await self.api.patch(f"{path}/status", {"status": status})).ok()
        return replicas

    def _run(self, name: str, *arguments: str) -> None:
        process = ServerProcess(
            [sys.executable, "-m", "partita", *arguments], log=self._folder / f"{name}.log"
        )
        self._processes.start(process, lambda: True)

    def logs(self) -> str:
        """Return the end of what they logged, for a failure."""
        return self._processes.tails(30)
