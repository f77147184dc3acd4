"""The profile of a training loop, as the agent would take it."""

from __future__ import annotations

import importlib.util

from acceptance.bench import MIB, Bench
from acceptance.requirements import needs_torch
from acceptance.results import Check, Findings

__all__ = ["PROFILE"]

_PHASES = (4.0, 3.0, 4.0)
"""Seconds of training, of rest, of training."""
_CONTEXT = 1024 * MIB
"""Bytes that NVML may count with a process beyond what torch holds: CUDA's context. An
assumption; `partita.agent.limits.process_limits` allows 640 MiB for the driver's share alone."""
_MOST_STEPS = 128


def _profile(bench: Bench, findings: Findings) -> None:
    # It needs pynvml, which may be what is missing.
    from acceptance.sampler import Sampler

    with bench.sharing(mps=False) as sharing:
        (client,) = sharing.start(1)
        reserved = client.ask("prepare", kind="training")["reserved"]
        sampler = Sampler(bench.gpu, client.pid)
        first, rest, last = _PHASES
        client.send("run", seconds=first)
        passes = client.receive(meanwhile=sampler)["passes"]
        sampler.rest(rest)
        client.send("run", seconds=last)
        passes += client.receive(meanwhile=sampler)["passes"]
        steps = sampler.steps()
    known = [step.utilization for step in steps if step.utilization is not None]
    third = len(steps) // 3
    busy = [u.utilization or 0.0 for u in steps[:third]]
    idle_from = int(len(steps) * (first + 1) / sum(_PHASES))
    idle_to = int(len(steps) * (first + rest) / sum(_PHASES))
    idle = [u.utilization or 0.0 for u in steps[idle_from:idle_to]]
    findings.figures |= {
        "passes": passes,
        "samples": sampler.samples,
        "samples per second": round(sampler.samples / sum(_PHASES), 1),
        "steps of the profile": len(steps),
        "largest memory, MiB": sampler.trace.peak // MIB,
        "held by torch, MiB": reserved // MIB,
        "the driver names the program's PID": sampler.seen,
        "mean GPU utilisation, percent": round(sum(known) / len(known), 1) if known else None,
        "mean SM occupancy, percent": _mean([step.occupancy for step in steps]),
        "mean PCIe throughput, MB/s": _mean([step.pcie for step in steps], 1e-6),
    }
    step_seconds = sum(_PHASES) / len(steps)
    findings.table(
        "Profile",
        ("from, s", "GPU, percent", "memory, MiB", "SM occupancy, percent", "PCIe, MB/s"),
        [
            (
                round(index * step_seconds, 1),
                _mean([step.utilization]),
                step.memory // MIB,
                _mean([step.occupancy]),
                _mean([step.pcie], 1e-6),
            )
            for index, step in list(enumerate(steps))[:: max(1, len(steps) // 16)]
        ],
    )
    findings.expect(len(steps) <= _MOST_STEPS, "the profile has more steps than its bound")
    findings.expect(sampler.trace.peak >= reserved, "the profile shows less memory than torch has")
    findings.expect(bool(known), "the GPU's utilisation is not told")
    findings.expect(
        bool(busy) and bool(idle) and sum(busy) / len(busy) > sum(idle) / len(idle),
        "training does not show as busier than the pause in it",
    )
    if sampler.seen:
        findings.expect(
            sampler.trace.peak <= reserved + _CONTEXT,
            "the profile shows over 1 GiB more memory than torch has",
        )
    else:
        findings.missing.append(
            "attribution by PID: the driver does not name the program's PID here, so the figures "
            "are the whole GPU's"
        )
    key = "ApplicationProfile"
    if importlib.util.find_spec("pydantic") is None:
        # No matter of the GPU: `make test` covers it.
        findings.figures[key] = "not formed, for pydantic is missing here"
        return
    from partita.agent.usage.profiles import measurement
    from partita.models.profile import Environment

    where = Environment(node="acceptance", product=bench.identity.product)
    made = measurement(steps, sum(_PHASES), where)
    findings.figures[key] = f"formed, {len(made.steps)} steps"


def _mean(values: list[float | None], scale: float = 1.0) -> float | None:
    known = [value for value in values if value is not None]
    return round(scale * sum(known) / len(known), 1) if known else None


PROFILE = Check(
    name="profile",
    done="A small network is trained for 4 s, pauses for 3 s and is trained for 4 s again, while "
    "the agent's code samples NVML 10 times a second and computes a profile.",
    expected="The memory is what torch holds plus CUDA's context (at most 1 GiB). The utilization "
    "during the training is higher than during the pause. The number of steps stays within its "
    "bound. Values that the GPU does not report are omitted.",
    run=_profile,
    seconds=35,
    requires=(needs_torch,),
)
