"""More and more clients, with MPS and without, beside the figures that nos published."""

from __future__ import annotations

from acceptance.bench import Bench
from acceptance.clients import run_together
from acceptance.requirements import needs_torch
from acceptance.results import CannotRunError, Check, Findings

__all__ = ["CLIENTS", "PUBLISHED", "judge"]

_COUNTS = (1, 3, 5, 7)
PUBLISHED = {
    True: {1: 0.08796, 3: 0.16400, 5: 0.24086, 7: 0.31982},
    False: {1: 0.08815, 3: 0.29314, 5: 0.48895, 7: 0.68488},
}
"""Seconds of one inference of YOLOS-small, with MPS and with time slicing, on a GPU that is not named:
https://github.com/nebuly-ai/nos, demos/gpu-sharing-comparison/README.md, "Results"."""
_SAME = 0.1
"""By how much one client with MPS may differ from one without. An assumption."""


def measure(bench: Bench, *, mps: bool) -> dict[int, float]:
    """Return the mean seconds of one inference by the number of clients."""
    means = {}
    with bench.sharing(mps=mps) as sharing:
        clients = sharing.start(max(_COUNTS))
        for client in clients:
            client.send("prepare", kind="inference")
        for client in clients:
            client.receive()
        for count in _COUNTS:
            times = run_together(clients[:count], bench.seconds)
            means[count] = sum(times) / count
    return means


def judge(times: dict[bool, dict[int, float]], findings: Findings) -> None:
    """Set the figures beside those published, and say what they ought to be."""
    rows = []
    for count in _COUNTS:
        row: list[object] = [count]
        for mps in (True, False):
            ours, theirs = times.get(mps), PUBLISHED[mps]
            row += [
                None if ours is None else round(ours[count], 5),
                None if ours is None else round(ours[count] / ours[1], 2),
                theirs[count],
                round(theirs[count] / theirs[1], 2),
            ]
        rows.append(row)
    header = ["clients"]
    for name in ("MPS", "time slicing"):
        header += [f"{name}, s", "of one", f"nos: {name}, s", "of one"]
    findings.table("Mean time of one inference", header, rows)
    if len(times) < 2:
        return
    with_mps, without = times[True], times[False]
    findings.expect(
        abs(with_mps[1] / without[1] - 1) <= _SAME, "MPS changes the time of a single client"
    )
    for count in _COUNTS[1:]:
        findings.expect(
            with_mps[count] < without[count],
            f"{count} clients are not faster with MPS than with time slicing",
        )


def _clients(bench: Bench, findings: Findings) -> None:
    times = {False: measure(bench, mps=False)}
    try:
        times[True] = measure(bench, mps=True)
    except CannotRunError as error:
        findings.missing.append(f"with MPS: {error}")
    judge(times, findings)


CLIENTS = Check(
    name="clients",
    done="1, 3, 5 and 7 programs run inferences of a vision transformer with the dimensions of "
    "YOLOS-small (random weights) at the same time, with MPS and time-sliced.",
    expected="3, 5 and 7 clients are faster with MPS than time-sliced, as nos published. A single "
    f"client takes the same time within {_SAME:.0%}. Seconds depend on the GPU; the time relative "
    "to a single client is comparable.",
    run=_clients,
    seconds=110,
    requires=(needs_torch,),
)
