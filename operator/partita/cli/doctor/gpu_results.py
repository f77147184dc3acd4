"""What the lines of the test programs mean. Pure functions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from partita.cli.doctor.check_result import CheckResult, not_checked, ok, problem
from partita.models.quantities import MEBI
from partita.pods.allocation import CONTEXT_MEMORY

__all__ = ["GPU_CHECKS", "fact_results", "limit_results", "memory_result", "steps_of"]

Json = dict[str, Any]

GPU_CHECKS: Final = ("memory-limit", "isolation", "reporting")
"""Names of the checks that need a GPU."""
_CHUNK: Final = 64
"""MiB by which the programs allocate (`partita.agent.gpu.check`)."""


def steps_of(log: bytes) -> dict[str, Json]:
    """Return the last line of each step of a program's log; lines of other kinds are left out."""
    steps = {}
    for line in log.decode(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                read = json.loads(line)
                steps[str(read["step"])] = read
            except (ValueError, KeyError):
                continue
    return steps


def fact_results(facts: Mapping[str, Any], node: str) -> Iterator[CheckResult]:
    """Check what the program saw of its GPU and its container."""
    if facts.get("cgroupVersion") == 2:
        yield ok("cgroup", "version 2", node=node)
    else:
        yield ok("cgroup", "version 1: limits by the driver need version 2", node=node)
    if "driver" not in facts:
        yield not_checked("compute-mode", "NVML cannot be used in a Pod", node=node)
        return
    cuda = facts.get("cuda") or 0
    said = f"{facts['driver']}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {facts.get('product')}"
    yield ok("driver in the Pod", said, node=node)
    mode = facts.get("computeMode")
    if mode in {"Default", "ExclusiveProcess"}:
        yield ok("compute-mode", mode, node=node)
    else:
        yield problem(
            "compute-mode",
            f"{mode}: MPS cannot serve the GPU",
            "set it to DEFAULT: nvidia-smi --compute-mode=DEFAULT",
            node=node,
        )


def limit_results(
    limit: Mapping[str, Any], neighbour: Mapping[str, Any], node: str
) -> Iterator[CheckResult]:
    """Check the limit of one program, and that the other one did not notice.

    A limit by the driver includes memory for the contexts of CUDA, so the program may get so much
    more than its share.

    Parameters
    ----------
    limit, neighbour
        The last lines of the two programs.
    """
    share, granted = int(limit["share"]), int(limit["granted"])
    refusal = str(limit["refusal"])
    if granted > share + CONTEXT_MEMORY // MEBI or not refusal:
        yield problem(
            "memory-limit",
            f"a program limited to {share} MiB got {granted} MiB",
            "check that NVIDIA's runtime gives the Pod the MPS pipe directory, and the driver's "
            "version: see docs/why-mps.md",
            node=node,
        )
    elif "OUT_OF_MEMORY" not in refusal or granted < _CHUNK:
        yield problem(
            "memory-limit",
            f"a program limited to {share} MiB got {granted} MiB: {refusal}",
            "look at the MPS server's log on the node",
            node=node,
        )
    else:
        yield ok("memory-limit", f"{granted} of {share} MiB, then {refusal}", node=node)
    failures, count = int(neighbour["failures"]), int(neighbour["allocations"])
    if failures or not count:
        yield problem(
            "isolation",
            f"{failures} allocations of the neighbour failed: {neighbour['error']}",
            "other programs use this GPU: see status.usage.unknownProcesses of its GPUServer",
            node=node,
        )
    else:
        yield ok("isolation", f"the neighbour allocated {count} times without failure", node=node)


def memory_result(facts: Mapping[str, Any], limit: Mapping[str, Any], node: str) -> CheckResult:
    """Check that NVML counts the memory that a program allocated.

    Meanwhile the other program may have freed its own, which is half of its share at most.

    Parameters
    ----------
    facts, limit
        What the program said before and after it allocated.
    """
    before, after = facts.get("used"), limit.get("used")
    if before is None or after is None:
        return not_checked("reporting", "NVML cannot be used in a Pod", node=node)
    said = f"NVML counts {after - before} MiB more after {limit['granted']} MiB were allocated"
    if after - before < limit["granted"] - limit["share"] // 2:
        remedy = "check that no other program uses this GPU"
        return problem("reporting", said, remedy, node=node)
    return ok("reporting", said, node=node)
