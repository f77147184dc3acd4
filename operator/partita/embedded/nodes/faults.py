"""Faults on request: what a `--faults` text asks for, and when it happens."""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from partita.models.base import parse_duration

__all__ = ["NODE_GONE", "FaultAt", "FaultTarget", "RandomFaults", "inject_faults", "parse_faults"]

NODE_GONE: Final = "node-gone"

_AT: Final = re.compile(
    r"(?P<kind>mps|gpu-lost|xid|node-gone)@(?P<at>[\w.]+)(\+(?P<back>[\w.]+))?:(?P<target>[\w.-]+)"
)
_RANDOM: Final = re.compile(r"random:(?P<rate>\d+(\.\d+)?)(,seed=(?P<seed>\d+))?")
_HELP: Final = (
    "write faults such as mps@30s:SERVER, xid@45s:SERVER, gpu-lost@1m:SERVER, "
    "node-gone@60s:NODE (node-gone@60s+30s:NODE comes back 30 s later) or "
    "random:2,seed=1 (2 a minute), with a semicolon between two"
)


@dataclass(frozen=True, slots=True)
class FaultAt:
    """One fault: kind, target, virtual seconds from the start, and until a node is back."""

    kind: str
    target: str
    at: float
    back: float | None = None


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Faults of GPUs at random times and places, at a rate per virtual minute."""

    rate: float
    seed: int = 0


class FaultTarget(Protocol):
    """What faults happen to."""

    def servers(self) -> Sequence[str]:
        """Name the GPUServers that are served."""
        ...

    def gpu_fault(self, kind: str, server: str) -> None:
        """Let the GPU of a GPUServer fail."""
        ...

    async def node_gone(self, node: str) -> None:
        """Switch a node off."""
        ...

    async def node_back(self, node: str) -> None:
        """Switch a node on."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        ...


def parse_faults(text: str) -> list[FaultAt | RandomFaults]:
    """Read the faults that a command line asks for.

    Raises
    ------
    ValueError
        If it is no such text; its message says what to write.
    """
    return [_parse(part.strip()) for part in text.split(";") if part.strip()]


def _parse(text: str) -> FaultAt | RandomFaults:
    if match := _RANDOM.fullmatch(text):
        return RandomFaults(float(match["rate"]), int(match["seed"] or 0))
    match = _AT.fullmatch(text)
    if match is None or (match["back"] and match["kind"] != NODE_GONE):
        raise ValueError(f"{text!r} is no fault: {_HELP}")
    back = parse_duration(match["back"]) if match["back"] else None
    return FaultAt(match["kind"], match["target"], parse_duration(match["at"]), back)


async def inject_faults(faults: Sequence[FaultAt | RandomFaults], target: FaultTarget) -> None:
    """Let faults happen, each at its time."""
    async with asyncio.TaskGroup() as group:
        for fault in faults:
            if isinstance(fault, FaultAt):
                group.create_task(_inject_at(fault, target))
            elif fault.rate:
                group.create_task(_inject_at_random(fault, target))


async def _inject_at(fault: FaultAt, target: FaultTarget) -> None:
    await target.sleep(fault.at)
    if fault.kind != NODE_GONE:
        target.gpu_fault(fault.kind, fault.target)
        return
    await target.node_gone(fault.target)
    if fault.back is not None:
        await target.sleep(fault.back)
        await target.node_back(fault.target)


async def _inject_at_random(faults: RandomFaults, target: FaultTarget) -> None:
    generator = random.Random(faults.seed)  # noqa: S311
    while True:
        await target.sleep(generator.expovariate(faults.rate / 60))
        kind = generator.choice(["mps", "xid", "gpu-lost"])
        place = generator.random()
        servers = sorted(target.servers())
        if servers:
            target.gpu_fault(kind, servers[int(place * len(servers))])
