"""KAI in `sharing`: Pods that ask for a fraction of a GPU by an annotation.

Its programs and CRDs come from a folder that the user names, since no registry that this project
builds from has its module. Measured were KAI-Scheduler 0.13.0, commit
5d35ecab74e693d6f40309d2e23a68b8ac138571 of https://github.com/NVIDIA/KAI-Scheduler, and 0.17.0,
commit f218c69bee5e5fc6031273ba555d09916b1ca89a of https://github.com/kai-scheduler/KAI-Scheduler,
without its two new plugins for groups of Pods, since each Pod here is alone. The folder has

- `scheduler`, `binder` and `podgrouper`, its programs of these names, and
- `crds`, with the YAML files of its chart's folder of this name.

It is set up as its documentation says: the default queues of its quick start, the plugins and
actions of its operator (docs/operator/scheduler-config-customization.md), which pack GPUs and
nodes, and Pods as in docs/gpu-sharing. With the recommended throttles it has its operator's
defaults; without throttles it has, as in its own scale tests (docs/scale-tests), more workers that
bind, and no consolidation.

What is left out would be more work for KAI: its operator, the controllers that only fill in the
statuses of queues and PodGroups, and its webhooks, of which the Pods here have what the one for
fractions adds. It has an administrator's rights, whom the API server asks no further, its release's
limits on CPU do not apply, and it logs less than its release.

Its scheduler accounts for groups of Pods, each with a reservation Pod on one GPU, but here a Pod
stands on the GPU that its ConfigMap names. In 0.13.0 the two come apart: its binder may delete a
reservation Pod that is in use, so that the GPU is given to a second group, and this shows as an
overfull GPU (https://github.com/kai-scheduler/KAI-Scheduler/issues/1103). Later releases have a fix
for it; 0.17.0 had overfull GPUs too, for a reason that was not looked for.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from typing_extensions import override

from apiserver.processes import free_port
from bench.client import Client, Json
from bench.peers.demand import GPU_MEMORY, NAMESPACE, PODS, Share, pod
from bench.peers.kai_nodes import RESERVATIONS, KaiNodes
from bench.peers.sharer import Sharer
from bench.stage import UNLIMITED, Plane, make_namespace, start

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["KaiFractions", "kai_folder", "shares_of"]


PROGRAMS = ("scheduler", "binder", "podgrouper")
CRDS = "crds"
SCALING = "kai-scale-adjust"
"""Namespace in which its binder looks for Pods that make the cluster grow."""
PARENT_QUEUE, QUEUE = "default-parent-queue", "default-queue"
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_NO_QUOTA = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
_PLUGINS = (
    *("predicates", "proportion", "priority", "nodeavailability", "resourcetype", "podaffinity"),
    *("elastic", "kubeflow", "ray", "subgrouporder", "taskorder", "nominatednode"),
    *("dynamicresources", "minruntime", "topology", "snapshot", "gpupack", "nodeplacement"),
    "gpusharingorder",
)
_ARGUMENTS = {"nodeplacement": {"cpu": "binpack", "gpu": "binpack"}}
_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
_DEFAULTS = {"binder": {"qps": 20, "burst": 100}, "podgrouper": {"qps": 20, "burst": 100}}
"""What its operator sets; its scheduler keeps its own 50 and 300."""
_FASTEST = {
    "scheduler": {"qps": -1, "max-consolidation-preemptees": 0},
    "binder": {"qps": -1, "max-concurrent-reconciles": 100},
    "podgrouper": {"qps": -1},
}
_GARBAGE_COLLECTION = {"scheduler": "400"}
"""GOGC, which its operator sets."""
DEVICE, PORTION = "NVIDIA_VISIBLE_DEVICES", "GPU_PORTION"
"""What a Pod with a fraction has in its environment, by way of a ConfigMap."""


def kai_folder(text: str) -> Path:
    """Return the folder with KAI's programs and CRDs.

    Raises
    ------
    argparse.ArgumentTypeError
        Something is missing there.
    """
    folder = Path(text)
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if not any((folder / CRDS).glob("*.yaml")):
        missing.append(f"{CRDS}/*.yaml")
    if missing:
        raise argparse.ArgumentTypeError(f"{folder} lacks {', '.join(missing)} of KAI")
    return folder


class KaiFractions(Sharer):
    """Pods with the annotation `gpu-fraction`."""

    name = "KAI, fractions"
    nodes = KaiNodes

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    async def install(self, plane: Plane, api: Client, stack: ExitStack) -> dict[str, int]:
        for path in sorted((self._folder / CRDS).glob("*.yaml")):
            await api.post(_DEFINITIONS, yaml.safe_load(path.read_text()))
        for namespace in (RESERVATIONS, SCALING):
            await make_namespace(api, namespace)
        # Of its Pods without a class of their own.
        await api.post(_PRIORITY_CLASSES, {"metadata": {"name": "train"}, "value": 50})
        await _make_queue(api, PARENT_QUEUE)
        await _make_queue(api, QUEUE, parentQueue=PARENT_QUEUE)
        settings = _FASTEST if plane.throttles is UNLIMITED else _DEFAULTS
        pids = {}
        for name in PROGRAMS:
            flags = [f"--{flag}={value}" for flag, value in settings.get(name, {}).items()]
            pids[f"KAI {name}"] = self._start(name, flags, plane, stack)
        return pids

    def _start(self, name: str, flags: Iterable[str], plane: Plane, stack: ExitStack) -> int:
        if name == "scheduler":
            configuration = plane.kubeconfig.with_name("kai-scheduler-configuration")
            configuration.write_text(json.dumps(_configuration()))
            own = [
                f"--scheduler-conf={configuration}",
                f"--listen-address=127.0.0.1:{free_port()}",
                f"--plugin-server-port={free_port()}",
                "--v=1",
            ]
        else:
            own = [
                "--metrics-bind-address=0",
                f"--health-probe-bind-address=127.0.0.1:{free_port()}",
                "--zap-log-level=info",
            ]
        environment = [f"KUBECONFIG={plane.kubeconfig}"]
        if percent := _GARBAGE_COLLECTION.get(name):
            environment.append(f"GOGC={percent}")
        command = ["/usr/bin/env", *environment, str(self._folder / name), *own, *flags]
        ready = "Go Version" if name == "scheduler" else "Starting workers"
        return start(command, plane.kubeconfig.with_name(f"kai-{name}.log"), ready, stack)

    @override
    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        for node, number in gpus.items():
            labels = {
                "nvidia.com/gpu.count": str(number),
                "nvidia.com/gpu.memory": str(GPU_MEMORY * 1024),
            }
            await api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
            amounts = {"nvidia.com/gpu": str(number)}
            status = {"capacity": amounts, "allocatable": amounts}
            await api.patch(f"/api/v1/nodes/{node}/status", {"status": status})

    @override
    def request(self, work: Work) -> tuple[str, Json]:
        given = f"{work.name}-shared-gpu"
        direct = {"name": f"{given}-0-evar", "optional": False}
        container = {
            "env": [_from_map(variable, f"{given}-0") for variable in _VARIABLES],
            "envFrom": [{"configMapRef": direct}],
        }
        volume = {"name": f"{given}-0-vol", "configMap": {"name": f"{given}-0"}}
        body = pod(work, {}, schedulerName="kai-scheduler", volumes=[volume])
        body["metadata"]["labels"] = {"kai.scheduler/queue": QUEUE}
        body["metadata"]["annotations"] |= {
            "gpu-fraction": f"{work.size / 100:g}",
            "runai/shared-gpu-configmap": given,
        }
        body["spec"]["containers"][0] |= container
        return PODS, body

    @override
    async def shares(self, api: Client) -> dict[str, Share]:
        maps = await api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
        return shares_of((await api.get(PODS))["items"], maps["items"])


_VARIABLES = (DEVICE, "RUNAI_NUM_OF_GPUS", PORTION)


def _from_map(variable: str, config_map: str) -> Json:
    """Return a variable that a container has from a ConfigMap."""
    source = {"configMapKeyRef": {"name": config_map, "key": variable}}
    return {"name": variable, "valueFrom": source}


def shares_of(pods: Iterable[Json], config_maps: Iterable[Json]) -> dict[str, Share]:
    """Return what the Pods that are bound and not being deleted have, from their ConfigMaps."""
    bound = {
        one["metadata"]["name"]
        for one in pods
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    }
    found = {}
    for one in config_maps:
        data = one.get("data") or {}
        owners = [owner["name"] for owner in one["metadata"].get("ownerReferences", ())]
        if DEVICE in data and PORTION in data and bound.issuperset(owners):
            portion = float(data[PORTION])
            memory, compute = round(GPU_MEMORY * portion, 6), round(100 * portion, 6)
            found |= {owner: Share(data[DEVICE], memory, compute) for owner in owners}
    return found


def _configuration() -> Json:
    plugins = [{"name": name, "arguments": _ARGUMENTS.get(name, {})} for name in _PLUGINS]
    return {"actions": ", ".join(_ACTIONS), "tiers": [{"plugins": plugins}]}


async def _make_queue(api: Client, name: str, **spec: Any) -> None:
    """Make a queue without a quota of its own as soon as its kind is served."""
    spec["resources"] = dict.fromkeys(("cpu", "gpu", "memory"), _NO_QUOTA)
    body = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "spec": spec}
    await api.post_when_served(_QUEUES, {**body, "metadata": {"name": name}})
