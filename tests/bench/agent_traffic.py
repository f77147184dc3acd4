"""What the agents' reports cost a real API server: `python -m bench.agent_traffic`.

Simulated GPUs (`bench.agent_replay`) report for minutes of their own time, as fast as the API
server answers, with the service account, the Pod-bound token and the admission policies of an
installation. Each agent watches its GPUServer, and two clients watch all of them, as operator and
console do. Measured is the processor time of kube-apiserver and etcd, less what both take in the
same time without reports.

With `--before CHECKOUT` each scene is run alternately with the code of that checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from apiserver.build import assets
from apiserver.controlplane import ControlPlane
from apiserver.rights import BASE
from bench.agent_replay import MEMORY, pod_uid
from bench.scale.meters import requests_served, usage
from partita.kube.client import SERVERS, Kube
from partita.kube.connect import connect
from partita.kube.watch import watch
from support.clusters import ApiServer
from support.crds import install_crds

GROUP = "/apis/partita.dev/v1alpha1"
NAMESPACE = "partita-servers"
TREE = Path(__file__).parents[2]
SCENES = [(0, "steady"), *product((4, 16), ("steady", "changing"))]
INSTALLED: Final = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
"""What the API server is told of the manifests, by kind; each kind needs those before it."""
QUIET = 10.0
"""Seconds in which the servers are measured without reports."""
FLEET = 1000
"""GPUs for which the figures are extrapolated."""


@dataclass(frozen=True)
class Run:
    """What one run of a scene has cost."""

    apiserver: float
    """Seconds of processor time."""
    etcd: float
    writes: int
    requests: dict[tuple[str, str], int]


class Bench:
    """A control plane with the objects of some GPUs."""

    def __init__(self, plane: ControlPlane, session: aiohttp.ClientSession, folder: Path) -> None:
        self._plane = plane
        self._server = ApiServer.of(plane)
        self._session = session
        self._api = self._server.api(session)
        self._folder = folder
        self._quiet = (0.0, 0.0)
        """Processor time per second without reports."""

    async def install(self) -> None:
        """Install the CRDs, rights and policies."""
        await install_crds(self._api)
        texts = [path.read_text() for path in sorted(BASE.glob("*.yaml"))]
        bodies = [body for text in texts for body in yaml.safe_load_all(text)]
        for kind, plural in INSTALLED.items():
            for body in (one for one in bodies if one["kind"] == kind):
                version, space = body["apiVersion"], body["metadata"].get("namespace")
                path = f"/apis/{version}" if "/" in version else f"/api/{version}"
                path = f"{path}/namespaces/{space}/{plural}" if space else f"{path}/{plural}"
                (await self._api.post(path, body)).ok()

    async def create_gpus(self, count: int) -> None:
        """Create GPUServers, their Pods, and a kubeconfig of each agent."""
        for number in range(count):
            name = f"gpus-{number}"
            server = {
                "apiVersion": "partita.dev/v1alpha1",
                "kind": "GPUServer",
                "metadata": {"name": name},
                "spec": {"partition": "gpus", "mode": "MPS", "maxJobs": 32},
            }
            (await self._api.post(f"{GROUP}/gpuservers", server)).ok()
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "serviceAccountName": "partita-agent",
                    "containers": [{"name": "agent", "image": "example.org/image:1"}],
                },
            }
            made = (await self._api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)).ok().body
            bound = {"apiVersion": "v1", "kind": "Pod", "name": name}
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": bound | {"uid": made["metadata"]["uid"]}},
            }
            path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/partita-agent/token"
            token = (await self._api.post(path, request)).ok().body["status"]["token"]
            config = self._plane.kubeconfig_of(token)
            (self._folder / f"{name}.json").write_text(json.dumps(config))

    async def allocate(self, jobs: int) -> None:
        """Write the ledgers, and clear what was reported."""
        for path in self._folder.glob("*.json"):
            entries = {
                f"{path.stem}-uid-{n}": {
                    "namespace": f"team-{n % 4}",
                    "name": f"train-{n}-gpu",
                    "pod": f"train-{n}",
                    "podUID": pod_uid(path.stem, n),
                    "application": "Deployment/resnet50",
                    "memory": str(MEMORY // jobs),
                    "threadPercent": 50,
                    "since": datetime.now(UTC).isoformat(),
                }
                for n in range(1, jobs + 1)
            }
            url = f"{GROUP}/gpuservers/{path.stem}"
            body = (await self._api.get(url)).ok().body
            body["status"] = {"allocations": entries}
            (await self._api.put(f"{url}/status", body)).ok()

    def _cpu(self) -> tuple[float, float]:
        pids = [self._plane.server(name).pid for name in ("kube-apiserver", "etcd")]
        api, etcd = (usage(pid).cpu for pid in pids if pid is not None)
        return api, etcd

    async def rest(self) -> None:
        """Measure the servers without reports."""
        before, at = self._cpu(), time.monotonic()
        await asyncio.sleep(QUIET)
        took = time.monotonic() - at
        api, etcd = (now - was for now, was in zip(self._cpu(), before, strict=True))
        self._quiet = api / took, etcd / took

    async def _served(self) -> dict[tuple[str, str], int]:
        trust = self._server.ssl_context() or True
        async with self._session.get(f"{self._plane.url}/metrics", ssl=trust) as answer:
            return requests_served(await answer.text())

    async def run(self, tree: Path, jobs: int, kind: str, seconds: int) -> Run:
        """Run a scene with the code of a checkout."""
        await self.allocate(jobs)
        paths = [tree / "operator", tree / "policies", TREE / "tests"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.agent_replay", str(self._folder), str(jobs), kind,
            str(seconds), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        served, before, at = await self._served(), self._cpu(), time.monotonic()
        process.stdin.write(b"\n")
        said = json.loads(await process.stdout.readline())
        took = time.monotonic() - at
        api, etcd = (
            now - was - rate * took
            for now, was, rate in zip(self._cpu(), before, self._quiet, strict=True)
        )
        found = await self._served()
        process.stdin.close()
        await process.wait()
        of_servers = {
            key: found[key] - served.get(key, 0) for key in found if key[1] == SERVERS.plural
        }
        return Run(api, etcd, said["writes"], {k: n for k, n in of_servers.items() if n})


async def _follow(kube: Kube) -> None:
    while True:
        async with watch(kube, SERVERS) as events:
            async for _ in events:
                pass


@asynccontextmanager
async def bench(gpus: int) -> AsyncIterator[Bench]:
    """Run a control plane with so many GPUs, which two clients watch."""
    with ControlPlane(assets()) as plane, tempfile.TemporaryDirectory(prefix="bench-") as text:
        async with (
            ApiServer.of(plane).session() as session,
            connect(str(plane.kubeconfig)) as client,
        ):
            made = Bench(plane, session, Path(text))
            await made.install()
            await made.create_gpus(gpus)
            watching = [asyncio.create_task(_follow(Kube(client))) for _ in range(2)]
            try:
                yield made
            finally:
                for task in watching:
                    task.cancel()


def table(label: str, runs: list[Run], gpu_minutes: float) -> str:
    """Return the figures of a scene, per GPU and minute."""
    cpu = [1000 * run.apiserver / gpu_minutes for run in runs]
    etcd = statistics.median(1000 * run.etcd / gpu_minutes for run in runs)
    middle = statistics.median(cpu)
    requests = ", ".join(f"{verb} {n}" for (verb, _), n in sorted(runs[-1].requests.items()))
    return (
        f"  {label:7} {middle:7.1f} ms ({min(cpu):.1f} to {max(cpu):.1f}), etcd {etcd:.1f} ms, "
        f"{statistics.median(r.writes for r in runs) / gpu_minutes:.2f} writes; "
        f"{FLEET} GPUs: {middle * FLEET / 60e3:.2f} cores  [{requests}]\n"
    )


async def measure(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    trees = {"before": arguments.before, "now": TREE} if arguments.before else {"now": TREE}
    minutes = arguments.gpus * arguments.minutes
    async with bench(arguments.gpus) as made:
        for jobs, kind in SCENES:
            runs: dict[str, list[Run]] = {label: [] for label in trees}
            for _ in range(arguments.rounds):
                await made.rest()
                for label, tree in trees.items():
                    runs[label].append(
                        await made.run(tree, jobs, kind, round(60 * arguments.minutes))
                    )
            sys.stdout.write(f"{jobs} jobs, {kind} usage, API server per GPU and minute:\n")
            for label, found in runs.items():
                sys.stdout.write(table(label, found, minutes))
            sys.stdout.flush()


def main() -> None:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--gpus", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10, help="of the GPUs' time in each run")
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
