"""Faults on request: what a `--faults` text asks for, and when it happens.

A fault of a GPU is asked for by an annotation on its GPUServer, for which its agent looks; a node
is gone while its Node is deleted. So anybody can do by hand what happens here.
"""

import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import structlog

from partita.models.quantities import parse_duration
from partita_testcluster.nodes.api import ApiError, APIServer
from partita_testcluster.nodes.node import NODES, Clock
from partita_testcluster.nodes.simulated_agent import FAULT_ANNOTATION, FAULTS, GPU_SERVERS

__all__ = ["Fault", "inject", "parse_faults"]

log = structlog.get_logger(__name__)

_GONE: Final = "node-gone"
_RANDOM: Final = "random"
_AT: Final = re.compile(r"(mps|gpu-lost|xid|node-gone)@([\w.]+)(?:\+([\w.]+))?:([\w.-]+)")
_AT_RANDOM: Final = re.compile(r"random:(\d+(?:\.\d+)?)(?:,seed=(\d+))?")
_HELP: Final = (
    "write faults such as mps@30s:SERVER, xid@45s:SERVER, gpu-lost@1m:SERVER, "
    "node-gone@60s:NODE (node-gone@60s+30s:NODE comes back 30 s later) or "
    "random:2,seed=1 (2 a minute), with a semicolon between two"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, or many GPUs' at random times; times are virtual seconds.

    Parameters
    ----------
    kind
        `mps`, `gpu-lost`, `xid`, `node-gone` or `random`.
    target
        The GPUServer or Node; the seed of what is random.
    after
        Time from the start; of what is random, the mean time between two (0 for never).
    back
        Time until a node is back; 0 for never.
    """

    kind: str
    target: str
    after: float
    back: float = 0.0


def parse_faults(text: str) -> list[Fault]:
    """Read the faults that a command line asks for.

    Raises
    ------
    ValueError
        If it is no such text; its message says what to write.
    """
    return [_parse(part.strip()) for part in text.split(";") if part.strip()]


def _parse(text: str) -> Fault:
    if match := _AT_RANDOM.fullmatch(text):
        rate = float(match[1])
        return Fault(_RANDOM, match[2] or "0", 60 / rate if rate else 0)
    match = _AT.fullmatch(text)
    if match is None or (match[3] and match[1] != _GONE):
        raise ValueError(f"{text!r} is no fault: {_HELP}")
    return Fault(match[1], match[4], parse_duration(match[2]), parse_duration(match[3] or "0s"))


async def inject(fault: Fault, api: APIServer, clock: Clock, servers: Collection[str]) -> None:
    """Let a fault happen at its time; random ones to any of the GPUServers that serve then."""
    if fault.kind == _RANDOM:
        generator = random.Random(int(fault.target))  # noqa: S311
        while fault.after:
            await clock.sleep(generator.expovariate(1 / fault.after))
            kind, place = generator.choice(sorted(FAULTS)), generator.random()
            if servers:
                await _annotate(api, kind, sorted(servers)[int(place * len(servers))])
        return
    await clock.sleep(fault.after)
    if fault.kind != _GONE:
        await _annotate(api, fault.kind, fault.target)
        return
    await _try(api, "DELETE", f"{NODES}/{fault.target}")
    if fault.back:
        await clock.sleep(fault.back)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": fault.target}}
        await _try(api, "POST", NODES, node)


async def _annotate(api: APIServer, kind: str, server: str) -> None:
    patch = {"metadata": {"annotations": {FAULT_ANNOTATION: kind}}}
    await _try(api, "PATCH", f"{GPU_SERVERS}/{server}", patch)


async def _try(api: APIServer, method: str, path: str, body: dict[str, Any] | None = None) -> None:
    try:
        await api.call(method, path, body)
    except ApiError as error:
        log.warning("no fault", path=path, error=str(error))
