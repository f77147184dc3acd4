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
"""MiB by which the programs allocate (`partita.agent.check`)."""


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


def fact_results(facts: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check what the program saw of its GPU and its container."""
    if facts.get("cgroupVersion") == 2:
        yield ok("version 2").of("cgroup")
    else:
        yield ok("version 1: limits by the driver need version 2").of("cgroup")
    if "driver" not in facts:
        yield not_checked("NVML cannot be used in a Pod").of("compute-mode")
        return
    cuda = facts.get("cuda") or 0
    said = f"{facts['driver']}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {facts.get('product')}"
    yield ok(said).of("driver in the Pod")
    mode = facts.get("computeMode")
    if mode in {"Default", "ExclusiveProcess"}:
        yield ok(mode).of("compute-mode")
    else:
        yield problem(
            f"{mode}: MPS cannot serve the GPU",
            "set it to DEFAULT: nvidia-smi --compute-mode=DEFAULT",
        ).of("compute-mode")


def limit_results(limit: Mapping[str, Any], neighbour: Mapping[str, Any]) -> Iterator[CheckResult]:
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
            f"a program limited to {share} MiB got {granted} MiB",
            "check that NVIDIA's runtime gives the Pod the MPS pipe directory, and the driver's "
            "version: see docs/why-mps.md",
        ).of("memory-limit")
    elif "OUT_OF_MEMORY" not in refusal or granted < _CHUNK:
        yield problem(
            f"a program limited to {share} MiB got {granted} MiB: {refusal}",
            "look at what the container mps of the server Pod prints",
        ).of("memory-limit")
    else:
        yield ok(f"{granted} of {share} MiB, then {refusal}").of("memory-limit")
    failures, count = int(neighbour["failures"]), int(neighbour["allocations"])
    if failures or not count:
        yield problem(
            f"{failures} allocations of the neighbour failed: {neighbour['error']}",
            "other programs use this GPU: see status.usage.unknownProcesses of its GPUServer",
        ).of("isolation")
    else:
        yield ok(f"the neighbour allocated {count} times without failure").of("isolation")


def memory_result(facts: Mapping[str, Any], limit: Mapping[str, Any]) -> CheckResult:
    """Check that NVML counts the memory that a program allocated.

    Meanwhile the other program may have freed its own, which is half of its share at most.

    Parameters
    ----------
    facts, limit
        What the program said before and after it allocated.
    """
    before, after = facts.get("used"), limit.get("used")
    if before is None or after is None:
        return not_checked("NVML cannot be used in a Pod").of("reporting")
    said = f"NVML counts {after - before} MiB more after {limit['granted']} MiB were allocated"
    if after - before < limit["granted"] - limit["share"] // 2:
        remedy = "check that no other program uses this GPU"
        return problem(said, remedy).of("reporting")
    return ok(said).of("reporting")
