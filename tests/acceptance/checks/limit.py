"""A client's memory limit refuses what is above it, to that client, and to no other."""

from __future__ import annotations

from acceptance.bench import MIB, Bench
from acceptance.program import CHUNK
from acceptance.requirements import needs_mps
from acceptance.results import Check, Findings

__all__ = ["LIMIT"]

_LARGEST_LIMIT = 4096
_OWN = 1024
"""MiB that a client may lose to what CUDA itself takes within the limit. Whether MPS counts that,
and how much it is, is what is measured here; the bound is an assumption."""


def _variables(limit: int) -> dict[str, str]:
    """Limit an MPS client, in MiB, as Partita limits a job.

    By ordinal: a UUID was not heeded in NVIDIA's own plugin
    (https://github.com/NVIDIA/k8s-device-plugin, 0.15.0-rc.2).
    """
    return {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={limit}M"}


def _limit(bench: Bench, findings: Findings) -> None:
    limit = min(_LARGEST_LIMIT, bench.identity.memory // (8 * MIB) // CHUNK * CHUNK)
    with (
        bench.daemon() as daemon,
        bench.start(daemon.client_pipes, variables=_variables(limit)) as greedy,
        bench.start(daemon.client_pipes, variables=_variables(2 * limit)) as neighbour,
    ):
        facts = greedy.ready().facts
        total, free = facts["total"], facts["available"]
        more = neighbour.ready().ask("fill", mib=limit + 4 * CHUNK)
        findings.expect(not more["said"], f"the neighbour, limited to {2 * limit} MiB, was refused")
        neighbour.send("run", seconds=bench.neighbour_seconds)
        filled = greedy.ask("fill", mib=2 * limit)
        held, said = filled["held"], filled["said"]
        again = greedy.ask("alloc", mib=CHUNK)["granted"]
        ran = greedy.ask("run", seconds=0.5)
        greedy.ask("free")
        after = greedy.ask("alloc", mib=CHUNK)["granted"]
        computed = neighbour.receive()
        beside = neighbour.ask("fill", mib=2 * CHUNK)
    gap = computed["longest"]
    findings.figures |= {
        "limit, MiB": limit,
        "total memory that CUDA reports to it, MiB": total,
        "free memory that CUDA reports to it, MiB": free,
        "granted before the refusal, MiB": held,
        "taken by CUDA itself within the limit, MiB": limit - held,
        "the refusal": said,
        "had by the neighbour, whose limit is twice that, MiB": more["held"] + beside["held"],
        "passes of the neighbour": computed["passes"],
        "longest time without a pass of the neighbour, s": round(gap, 3),
    }
    findings.expect(bool(said), f"{held} MiB were granted with a limit of {limit} MiB")
    findings.expect(held <= limit, "more was granted than the limit")
    findings.expect(held >= limit - _OWN, f"refused {limit - held} MiB below the limit")
    findings.expect(total > 2 * limit, f"CUDA reports {total} MiB, and not the whole GPU")
    findings.expect(free <= limit, f"CUDA reports {free} MiB as free")
    findings.expect("OUT_OF_MEMORY" in said, "the refusal is not CUDA's out of memory")
    findings.expect(not again, "what was refused once was granted the next time")
    findings.expect(not ran["ended"], f"the refused client cannot compute: {ran['ended']}")
    findings.expect(after, "the refused client gets nothing even after it gave all back")
    findings.expect(not computed["ended"], f"the neighbour was ended: {computed['ended']}")
    findings.expect(gap <= bench.longest_gap, f"the neighbour was held up for {gap:.2f} s")
    findings.expect(not beside["said"], "the neighbour was refused after the other one was")


LIMIT = Check(
    name="memory-limit",
    done="Two MPS clients run. CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is n MiB for the first one and 2n "
    "MiB for the second one, which computes. The first one allocates blocks of "
    f"{CHUNK} MiB until an allocation fails.",
    expected="The allocation of the first client fails at n MiB, minus what CUDA itself uses (at "
    f"most {_OWN} MiB), with CUDA's out-of-memory error. The client continues to compute, and can "
    "allocate again after it has freed memory. CUDA reports to it the whole GPU as its total memory, "
    "and at most n MiB as free. The second client gets more than n MiB, and none of its allocations "
    "fails.",
    run=_limit,
    requires=(needs_mps,),
)
