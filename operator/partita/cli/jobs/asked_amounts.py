"""The amounts of GPU memory and threads that a Pod asks for, in the units of several systems.

- Partita: `manifests/limits`, and the names of its ResourceClaimTemplates.
- HAMi: `nvidia.com/gpumem` in MiB for each GPU of a container, `nvidia.com/gpucores` in percent
  (https://project-hami.io/docs/userguide/configure/#container-configs).
- Volcano: `volcano.sh/vgpu-memory` in MiB and `volcano.sh/vgpu-cores` in percent, and the older
  `volcano.sh/gpu-memory` in MiB (volcano-sh/devices, docs).
- Alibaba's gpushare: `aliyun.com/gpu-mem` in GiB, the default of its device plugin
  (AliyunContainerService/gpushare-device-plugin, `--memory-unit`).
- MIG: the profile in the name of `nvidia.com/mig-3g.20gb`, a little more than its GPU instance has
  (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/).
- KAI: the annotation `gpu-memory` in MiB (kai-scheduler/KAI-Scheduler, docs/gpu-sharing).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from partita.constants import LIMIT_MEMORY, LIMIT_THREADS
from partita.models.quantities import MEBI, format_memory, parse_quantity
from partita.pods.containers import concurrent_containers
from partita.pods.requests import effective_requests

__all__ = ["is_of_a_gpu", "read_amounts"]

Json = dict[str, Any]

_MEMORY: Final = {
    LIMIT_MEMORY: 1,
    "nvidia.com/gpumem": MEBI,
    "volcano.sh/vgpu-memory": MEBI,
    "volcano.sh/gpu-memory": MEBI,
    "aliyun.com/gpu-mem": MEBI << 10,
}
"""Bytes of one unit, by resource."""
_MIG: Final = re.compile(r"nvidia\.com/mig-[0-9]+g\.([0-9]+)gb")
_THREADS: Final = (LIMIT_THREADS, "nvidia.com/gpucores", "volcano.sh/vgpu-cores")
_SHARES: Final = (
    "nvidia.com/gpu.shared",
    "nvidia.com/vgpu",
    "volcano.sh/vgpu-number",
    "volcano.sh/gpu-number",
)
"""Resources that count shares of GPUs. `.shared` is that of time slicing with renamed resources
(https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus), and `vgpu` is `resourceName` in
the values of many of HAMi's users (Project-HAMi/HAMi issues 991 and 1113)."""
_GPU: Final = "nvidia.com/gpu"
_KAI: Final = "gpu-memory"
_REMOVED: Final = (
    *("nvidia.com/", "gpu.partita.dev/", "partita.dev/", "volcano.sh/", "aliyun.com/gpu"),
    *("tencent.com/vcuda", "4paradigm.com/vgpu"),
)
"""Beginnings of the names of resources that have no effect with Partita, or that it asks for."""


def is_of_a_gpu(resource: str) -> bool:
    """Return whether a resource is a GPU or a share of one, which a job must not ask for."""
    return resource.startswith(_REMOVED)


def read_amounts(pod: Mapping[str, Any], annotations: Mapping[str, Any]) -> tuple[Json, list[str]]:
    """Read the amounts of a Pod: the most that its containers ask for at the same time.

    Init containers run one after the other, each beside the sidecars before it, and all sidecars
    beside the containers, as kube-scheduler adds them up (`partita.pods.requests`).

    Returns
    -------
    fields, notes
        The fields of a job's spec that say the same, and what could not be carried over.

    Raises
    ------
    ValueError
        If an amount is no whole number. The message contains a correction.
    """
    asking = {
        kind: [c for c in pod.get(kind) or () if any(map(is_of_a_gpu, _amounts(c)))]
        for kind in ("initContainers", "containers")
    }
    every = [container for containers in asking.values() for container in containers]
    for container in every:
        for resource, amount in _amounts(container).items():
            if is_of_a_gpu(resource) and parse_quantity(str(amount)) % 1:
                raise ValueError(f"{resource} is {amount!r}: write a whole number")
    asked = effective_requests(asking)
    memory = _memory(asked)
    if not memory and str(annotations.get(_KAI, "")).isdecimal():
        memory = int(annotations[_KAI]) * MEBI
    threads = _most(every, lambda resource: resource in _THREADS)
    # Containers that ask for shares get shares of one GPU, and others a GPU each.
    shared = memory or any(name in asked for name in _SHARES)
    gpus = _most(every, lambda resource: resource == _GPU) if shared else asked.get(_GPU, 0)
    users = concurrent_containers(asking["initContainers"], asking["containers"])
    fields: Json = {"gpus": gpus} if gpus > 1 else {}
    fields |= {"gpuMemory": format_memory(memory)} if memory else {}
    fields |= {"threadPercent": min(threads, 100)} if threads else {}
    fields |= {"processes": users} if users > 1 else {}
    return fields, [*_notes(pod, asked, every, memory, users)]


def _notes(
    pod: Mapping[str, Any], asked: Mapping[str, int], every: list[Json], memory: int, users: int
) -> Iterator[str]:
    if users > 1 and memory:
        largest = max(_memory(effective_requests({"containers": [c]})) for c in every)
        yield (
            f"{users} containers use the GPU at the same time, so each of their processes may use "
            f"{format_memory(memory // users // MEBI * MEBI)}"
            + (
                f", and one asks for {format_memory(largest)}: write "
                f"--gpu-memory {format_memory(largest * users)} if it needs that much"
                if largest * users > memory
                else ""
            )
        )
    understood = {*_THREADS, *_SHARES, _GPU}
    for resource, amount in asked.items():
        if is_of_a_gpu(resource) and not _unit(resource) and resource not in understood:
            yield f"{resource}: {amount} is left out, write its amount of memory as --gpu-memory"
    others = effective_requests({kind: pod.get(kind) for kind in ("initContainers", "containers")})
    for resource, amount in others.items():
        domain = resource.partition("/")[0] if "/" in resource else ""
        if domain and not domain.endswith("kubernetes.io") and not is_of_a_gpu(resource):
            yield f"{resource}: {amount} stays: the job runs on a node that has it beside the GPU"


def _amounts(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def _memory(asked: Mapping[str, int]) -> int:
    """Return the bytes of GPU memory in amounts by resource."""
    return sum(amount * _unit(resource) for resource, amount in asked.items())


def _unit(resource: str) -> int:
    """Return the bytes of one unit of a resource; 0 if it is no amount of GPU memory."""
    profile = _MIG.match(resource)
    return int(profile[1]) * (MEBI << 10) if profile else _MEMORY.get(resource, 0)


def _most(containers: list[Json], chosen: Callable[[str], bool]) -> int:
    """Return the largest amount of the chosen resources in any container."""
    asked = (effective_requests({"containers": [container]}) for container in containers)
    return max((n for amounts in asked for name, n in amounts.items() if chosen(name)), default=0)
