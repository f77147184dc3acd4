"""How long it takes until a Pod or a claim that cannot get a slice is told why."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from bench.claims.plane import PlaneWithScheduler
from bench.claims.pods import fill_nodes
from bench.load.figures import Figure
from bench.load.stage import Stage, Tell, on_stage, partition_of
from bench.scale.partitions import PARTITIONS_PATH, make_partitions
from partita.constants import ANNOTATION_STATUS
from partita.models.device_class import device_class_of

__all__ = ["mistakes"]

Json = dict[str, Any]

GPUS = 2
NAMESPACE = "mistakes"
MOST_MILLISECONDS = 2000.0
"""Issue 17."""
_CORE = f"/api/v1/namespaces/{NAMESPACE}"
_CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}"


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A way to ask for a slice that must be answered by a message.

    Attributes
    ----------
    reason
        Of the Event about the Pod, or in the annotation of the claim if there is no Pod.
    request
        What the claim asks for instead of 1 GiB of the partition; None for no template.
    named
        Whether the Pods name one claim, and no template.
    pods
        Number of Pods.
    """

    name: str
    reason: str
    request: Json | None = field(default_factory=dict)
    annotations: Json = field(default_factory=dict)
    limits: Json = field(default_factory=dict)
    named: bool = False
    pods: int = 1


_MISTAKES = (
    _Mistake("unknown device class", "PartitionNotFound", {"deviceClassName": "no.gpu.partita.dev"}),
    _Mistake("more memory than any GPU", "NeverFits", {"capacity": {"requests": {"memory": "900Gi"}}}),
    _Mistake("two Pods share a claim", "InvalidSpec", named=True, pods=2),
    _Mistake("claim without a Pod", "NoPod", named=True, pods=0),
    _Mistake("missing template", "FailedResourceClaimCreation", None),
    _Mistake("amount in the claim and in an annotation", "InvalidSpec", annotations={"gpu-memory": "2Gi"}),
    _Mistake("annotation is no quantity", "InvalidSpec", {"capacity": None}, {"gpu-memory": "much"}),
    _Mistake("limit without the policy that replaces it", "LimitNotReplaced", None, limits={"partita.dev/gpu-memory": "1Gi"}),
    _Mistake("partition without a GPU", "NoGPUReady", {"deviceClassName": device_class_of("dra")}),
)  # fmt: skip


def mistakes(samples: int, tell: Tell) -> list[Figure]:
    """Make each mistake some times, one after the other; return the longest wait for its message.

    Parameters
    ----------
    samples
        How often each is made.
    """

    async def play(stage: Stage) -> list[Figure]:
        await stage.start_operator()
        await fill_nodes(stage.api, GPUS)
        await make_partitions(stage.api, [partition_of("shared", gpus=GPUS)])
        # No driver of NVIDIA publishes devices here: its GPUs never become ready.
        await stage.api.post(PARTITIONS_PATH, partition_of("dra", gpus=1, gpuSource="DRA"))
        messages = _Messages(stage)
        stage.beside(stage.api.watch(f"{_CORE}/events", messages.see_event))
        stage.beside(stage.api.watch(f"{_CLAIMS}/resourceclaims", messages.see_claim))
        found = []
        for index, mistake in enumerate(_MISTAKES):
            waits = [
                await _make(stage, messages, mistake, f"m{index}-{number}")
                for number in range(samples)
            ]
            figure = f"{mistake.name}: longest of {samples}"
            found.append(Figure(figure, 1000 * max(waits), "ms", MOST_MILLISECONDS))
        return found

    return on_stage(
        play, gpus=GPUS, namespaces=[NAMESPACE], tell=tell, plane_type=PlaneWithScheduler
    )


class _Messages:
    """When each object was told a reason first, by its name and the reason."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen: dict[tuple[str, str], float] = {}

    def see_event(self, _: str, event: Json) -> None:
        """Take an Event."""
        self.seen.setdefault((event["involvedObject"]["name"], event["reason"]), time.time())

    def see_claim(self, _: str, claim: Json) -> None:
        """Take a claim."""
        said = claim["metadata"].get("annotations", {}).get(ANNOTATION_STATUS, "")
        self.seen.setdefault((claim["metadata"]["name"], said.partition(": ")[0]), time.time())

    async def first(self, names: list[str], reason: str) -> float:
        """Wait until one of these objects is told this reason; return when it was."""
        keys = {(name, reason) for name in names}
        await self.stage.until(f"{names} told {reason}", lambda: len(keys & self.seen.keys()))
        return min(self.seen[key] for key in keys & self.seen.keys())


async def _make(stage: Stage, messages: _Messages, mistake: _Mistake, name: str) -> float:
    """Make a mistake; return the seconds until a Pod, or the claim, was told of it."""
    began = time.time()
    if mistake.request is not None:
        await _ask(stage, mistake, name)
    pods = [f"{name}-{number}" for number in range(mistake.pods)]
    for pod in pods:
        await stage.api.post(f"{_CORE}/pods", _pod(mistake, pod, name))
    return await messages.first(pods or [name], mistake.reason) - began


async def _ask(stage: Stage, mistake: _Mistake, name: str) -> None:
    """Create the claim, or the template."""
    exactly = {
        "deviceClassName": device_class_of("shared"),
        "capacity": {"requests": {"memory": "1Gi"}},
        **(mistake.request or {}),
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    plural = "resourceclaims" if mistake.named else "resourceclaimtemplates"
    body = {"metadata": {"name": name}, "spec": spec if mistake.named else {"spec": spec}}
    await stage.api.post(f"{_CLAIMS}/{plural}", body)


def _pod(mistake: _Mistake, name: str, claim: str) -> Json:
    main: Json = {"name": "main", "image": "bench"}
    notes = {f"partita.dev/{key}": value for key, value in mistake.annotations.items()}
    meta = {"name": name, "annotations": notes}
    if mistake.limits:
        main["resources"] = {"limits": mistake.limits}
        return {"metadata": meta, "spec": {"containers": [main]}}
    main["resources"] = {"claims": [{"name": "gpu"}]}
    source = {"resourceClaimName" if mistake.named else "resourceClaimTemplateName": claim}
    spec = {
        "restartPolicy": "Never",
        "containers": [main],
        "resourceClaims": [{"name": "gpu", **source}],
        "schedulingGates": [{"name": "partita.dev/allocation"}],
    }
    return {"metadata": meta, "spec": spec}
