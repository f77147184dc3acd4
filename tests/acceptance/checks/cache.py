"""The study's table of cache-sensitive and cache-insensitive programs, repeated."""

from __future__ import annotations

from acceptance.bench import Bench
from acceptance.clients import Client, run_together
from acceptance.requirements import needs_torch
from acceptance.results import CannotRunError, Check, Findings

__all__ = ["CACHE", "PUBLISHED", "SIZES", "judge"]

SIZES = (5120, 10240, 20480, 40960)
PUBLISHED = {
    "cache-sensitive": {
        5120: (0.73984, 1.4952),
        10240: (2.72925, 3.24161),
        20480: (13.38374, 12.57792),
        40960: (223.60555, 61.51608),
    },
    "cache-insensitive": {
        5120: (0.70990, 1.49199),
        10240: (1.58436, 3.35677),
        20480: (6.75526, 12.37545),
        40960: (40.67550, 50.70506),
    },
}
"""Seconds of a cache-sensitive program beside one of this kind, with MPS and without: Table 1 of
"Analyzing GPU Performance on Containers and Characteristics of Multi-Task Scheduling" (Son, Kim,
Han), on a GTX 980 Ti and a V100."""
_SENSITIVE = 1.10
"""From here on the study calls a kernel cache-sensitive: 10 % more hits of the L1 cache when that
is doubled. torch cannot change the L1; here it is the time with tiles that do not fit into the L2
in terms of that with tiles that do."""
_UNFIT = 8.0
"""A tile of four times the L2."""
_PROBED = 10240
_PART = 0.8
"""Of the memory that three matrices may take."""
_PROGRAMS = 3

Pairs = dict[str, dict[int, float]]


def measure(bench: Bench, sizes: list[int], *, mps: bool) -> tuple[Pairs, dict[int, float]]:
    """Return the seconds of one pass beside each kind of neighbour, and alone, by size."""
    beside: Pairs = {kind: {} for kind in PUBLISHED}
    alone: dict[int, float] = {}
    with bench.sharing(mps=mps) as sharing:
        programs = sharing.start(_PROGRAMS)
        first, *others = programs
        neighbours = dict(zip(PUBLISHED, others, strict=True))
        for size in sizes:
            first.send("prepare", kind="cache-sensitive", size=size)
            for kind, neighbour in neighbours.items():
                neighbour.send("prepare", kind=kind, size=size)
            for program in programs:
                program.receive()
            (alone[size],) = run_together([first], bench.seconds)
            for kind, neighbour in neighbours.items():
                beside[kind][size], _ = run_together([first, neighbour], bench.seconds)
    return beside, alone


def sensitivity(client: Client, kind: str, seconds: float) -> float:
    """Return the time with tiles too large for the cache in terms of that with tiles that fit."""
    times = []
    for tile in (_UNFIT, 1.0):
        client.ask("prepare", kind=kind, size=_PROBED, tile=tile)
        times += run_together([client], seconds)
    return times[0] / times[1]


def judge(with_mps: Pairs, without: Pairs, findings: Findings) -> None:
    """Set the ratios beside those published, and say what they ought to be."""
    ratios: Pairs = {
        kind: {size: with_mps[kind][size] / seconds for size, seconds in times.items()}
        for kind, times in without.items()
    }
    rows = []
    for kind, of_size in ratios.items():
        for size, ratio in of_size.items():
            theirs, theirs_without = PUBLISHED[kind][size]
            ours = (round(times[kind][size], 5) for times in (with_mps, without))
            rows.append((kind, size, *ours, round(ratio, 3), round(theirs / theirs_without, 3)))
    header = ("neighbour", "size", "MPS, s", "time slicing, s", "ratio", "ratio published")
    findings.table("One pass of the cache-sensitive program beside a neighbour", header, rows)
    for size, ratio in ratios["cache-insensitive"].items():
        findings.expect(
            ratio < 1, f"at {size} MPS is slower ({ratio:.2f}) beside the cache-insensitive one"
        )
    largest = max(ratios["cache-sensitive"], default=0)
    if largest:
        sensitive, insensitive = (ratios[kind][largest] for kind in PUBLISHED)
        findings.expect(
            sensitive > insensitive,
            f"at {largest} the cache-sensitive neighbour costs no more of MPS's gain "
            f"({sensitive:.2f}) than the insensitive one ({insensitive:.2f})",
        )


def _cache(bench: Bench, findings: Findings) -> None:
    capacity = int(bench.identity.memory * _PART)
    sizes = [size for size in SIZES if _PROGRAMS * 4 * size * size <= capacity]
    for size in sorted(set(SIZES) - set(sizes)):
        findings.missing.append(f"size {size}: three such matrices do not fit into the GPU")
    with bench.sharing(mps=False) as sharing:
        (client,) = sharing.start(1)
        found = {kind: sensitivity(client, kind, bench.seconds) for kind in PUBLISHED}
    for kind, times in found.items():
        findings.figures[f"{kind} kernel, tiles of 4 L2 in terms of tiles of 1/2 L2"] = round(
            times, 2
        )
        findings.expect(
            (times >= _SENSITIVE) == (kind == "cache-sensitive"),
            f"the {kind} kernel is not what it is called on this GPU: {times:.2f}",
        )
    without, alone = measure(bench, sizes, mps=False)
    findings.table(
        "One pass of the cache-sensitive program alone",
        ("size", "s"),
        [(size, round(seconds, 5)) for size, seconds in alone.items()],
    )
    try:
        with_mps, _ = measure(bench, sizes, mps=True)
    except CannotRunError as error:
        findings.missing.append(f"with MPS: {error}")
        return
    judge(with_mps, without, findings)


CACHE = Check(
    name="cache-table",
    done="A program reads tiles of half the L2 cache several times, of a matrix of 5120 to 40960 "
    "rows and columns. It runs next to a second one of its kind, and next to a program that "
    "computes much for each number, with MPS and time-sliced.",
    expected="The kernels differ in their sensitivity to the cache as their names say. Next to the "
    "insensitive kernel MPS is faster at every size. Next to the sensitive kernel the gain is "
    "smaller, at least at the largest size (published: 3.63 and 0.80 of the time without needs_mps).",
    run=_cache,
    seconds=130,
    requires=(needs_torch,),
)
