"""Bench-scale's jobs with and without invalid ones among them."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.load.figures import Figure, LoadError
from bench.load.stage import Tell, job_for
from bench.scale.client import Client, RefusedError
from bench.scale.partitions import PARTITIONS_PATH, READY_SECONDS, jobs_path, make_namespace
from bench.scale.run import Result, run
from bench.scale.shape import CLASSES, shrunk
from partita.reconcile.reasons import Reason

__all__ = ["invalid"]

Json = dict[str, Any]

OBJECTS = 1000
"""Invalid ones beside all 15,000; fewer where fewer jobs are submitted."""
SECONDS = 55.0
"""In which they come: the last of the others comes after 59 s."""
MOST_RATIO = 1.05
"""Issue 7."""
_SERVERS = ("operator", "kube-apiserver", "etcd")
_LABEL = "bench.partita.dev/invalid"
_STRANGER = "stranger"
"""A namespace that no partition serves."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A way to be invalid.

    Attributes
    ----------
    spec
        What stands in the job's spec instead of the usual.
    reason
        What its status says; None where the API server refuses the job.
    """

    name: str
    spec: Json
    reason: Reason | None = None
    namespace: str = ""


def _template(**container: Any) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": "bench", **container}]}}


_KINDS = (
    _Kind("memory is no quantity", {"gpuMemory": "lots"}),
    _Kind("two sizes at a time", {"slice": "small"}),
    _Kind("no container", {"template": {"spec": {"containers": []}}}),
    _Kind("no GPU", {"gpus": 0}),
    _Kind("more memory than any GPU", {"gpuMemory": "100Gi"}, Reason.NEVER_FITS),
    _Kind("more GPUs than may be shared", {"gpus": 4}, Reason.INVALID_SPEC),
    _Kind("no such partition", {"partition": "nowhere"}, Reason.PARTITION_NOT_FOUND),
    _Kind("a namespace that is not served", {}, Reason.NAMESPACE_NOT_ALLOWED, _STRANGER),
    _Kind("variables are no list", {"template": _template(env="DEBUG=1")}, Reason.INVALID_SPEC),
    # What only the API server finds out, once the job is allocated and its Pod is to be made.
    _Kind("a Pod refused", {"template": _template(name="No Such Name")}, Reason.INVALID_SPEC),
    _Kind(
        "a Pod that cannot be read",
        {"template": _template(resources={"limits": {"memory": "a lot"}})},
        Reason.INVALID_SPEC,
    ),
)


def invalid(share: float, rounds: int, tell: Tell) -> list[Figure]:
    """Run bench-scale without and with invalid objects, in turns.

    Parameters
    ----------
    share
        Submit only this part of all, invalid ones too.
    rounds
        Runs of each; what is compared are medians.
    """
    results: dict[bool, list[Result]] = {False: [], True: []}
    for number in range(rounds):
        for bad in (False, True) if number % 2 == 0 else (True, False):
            count = round(OBJECTS * share) if bad else 0
            tell(f"round {number + 1} of {rounds}, {count} invalid objects")
            result = run(
                classes=shrunk(share),
                share=share,
                with_pods=True,
                tell=tell,
                beside=partial(_beside, count, SECONDS * min(1.0, share)),
            )
            results[bad].append(result)
            tell(f"{result.wall:.1f} s, {_cpu(result):.1f} s of CPU")
    return _compared(results[False], results[True])


def _cpu(result: Result) -> float:
    """Return what the servers needed, which a busy machine changes less than the wall time."""
    return sum(result.used[name].cpu for name in _SERVERS)


@asynccontextmanager
async def _beside(count: int, seconds: float, api: Client, names: list[str]) -> AsyncIterator[None]:
    """Submit invalid objects while others are; at the end see that each was told what is wrong.

    The partitions serve only their own namespace, whether there are invalid objects or not.
    """
    for name in names:
        served = {"matchLabels": {"kubernetes.io/metadata.name": name}}
        await api.patch(f"{PARTITIONS_PATH}/{name}", {"spec": {"allowedNamespaces": served}})
    await make_namespace(api, _STRANGER)

    async def submit() -> None:
        for number in range(count):
            await _submit(api, _KINDS[number % len(_KINDS)], number, names[number % len(names)])
            await asyncio.sleep(seconds / count)

    submitting = asyncio.create_task(submit())
    try:
        yield
        await submitting
        await _all_told(api, count)
    finally:
        submitting.cancel()


async def _submit(api: Client, kind: _Kind, number: int, partition: str) -> None:
    namespace = kind.namespace or partition
    body = job_for(partition, (namespace, f"invalid-{number}"), CLASSES[0], **kind.spec)
    body["metadata"]["labels"] = {_LABEL: str(number % len(_KINDS))}
    try:
        await api.post(jobs_path(namespace), body)
    except RefusedError as error:
        if error.status != 422 or kind.reason is not None:
            raise
    else:
        if kind.reason is None:
            raise LoadError(f"the API server takes a job that is invalid: {kind.name}")


async def _all_told(api: Client, count: int) -> None:
    taken = sum(_KINDS[number % len(_KINDS)].reason is not None for number in range(count))
    untold = Counter[str]()
    for _ in range(READY_SECONDS):
        listed = (await api.get(f"{jobs_path()}?labelSelector={_LABEL}"))["items"]
        untold.clear()
        for job in listed:
            kind = _KINDS[int(job["metadata"]["labels"][_LABEL])]
            reason = (job.get("status") or {}).get("reason", "no reason")
            if reason != kind.reason:
                untold[f"{kind.name}: {reason}, not {kind.reason}"] += 1
        if len(listed) == taken and not untold:
            return
        await asyncio.sleep(1)
    raise LoadError(f"of {taken} invalid jobs there are {len(listed)}, and not told: {untold}")


def _compared(without: list[Result], with_them: list[Result]) -> list[Figure]:
    figures = []

    def compare(what: str, unit: str, values: list[list[float]], most: float | None = None) -> None:
        before, after = (statistics.median(of_a_kind) for of_a_kind in values)
        figures.extend(
            [
                Figure(f"{what}: without", before, unit),
                Figure(f"{what}: with", after, unit),
                Figure(f"{what}: ratio", after / before, "", most),
            ]
        )

    runs = (without, with_them)
    compare("wall time", "s", [[r.wall for r in results] for results in runs], MOST_RATIO)
    for name in without[0].admission:
        medians = [[r.admission[name].median for r in results] for results in runs]
        compare(f"median admission, {name}", "s", medians)
    compare("CPU, all three", "s", [[_cpu(r) for r in results] for results in runs], MOST_RATIO)
    for name in _SERVERS:
        compare(f"CPU, {name}", "s", [[r.used[name].cpu for r in results] for results in runs])
    return figures
