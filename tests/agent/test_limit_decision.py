"""What limits the GPU memory of jobs, for each combination of what was found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partita.agent.limits.decision import LimitSupport, ProbeResult, decide
from partita.models.sharing import Enforcement

NEW = LimitSupport(driver="615.71.09", functions=True, cgroups=2, dmem=True)
OLD = replace(NEW, driver="580.95.05", functions=False)
V1 = replace(NEW, cgroups=1)
AUTO, DRIVER, CLIENT = Enforcement.AUTO, Enforcement.DRIVER, Enforcement.CLIENT


@pytest.mark.parametrize(
    ("requested", "support", "hook", "enforcement", "status", "reason"),
    [
        (AUTO, OLD, "Unknown", "Client", "False", "NoDriverSupport"),
        (AUTO, V1, "Unknown", "Client", "False", "CgroupV1"),
        (AUTO, NEW, "Unknown", None, "Unknown", "LimitsNotProven"),
        (AUTO, NEW, "Applied", "Driver", "True", "Proven"),
        (AUTO, NEW, "NotApplied", "Client", "False", "HookMissing"),
        (AUTO, NEW, "Failed", "Client", "False", "HookFailed"),
        (DRIVER, OLD, "Unknown", None, "False", "NoDriverSupport"),
        (DRIVER, NEW, "Unknown", None, "Unknown", "LimitsNotProven"),
        (DRIVER, NEW, "Applied", "Driver", "True", "Proven"),
        (DRIVER, NEW, "NotApplied", None, "False", "HookMissing"),
        (CLIENT, NEW, "Applied", "Client", "False", "NotRequested"),
    ],
)
def test_the_strongest_proven_enforcement_is_in_force(
    requested: Enforcement,
    support: LimitSupport,
    hook: str,
    enforcement: str | None,
    status: str,
    reason: str,
):
    made = decide(requested, support, ProbeResult(hook))  # type: ignore[arg-type]
    assert made.enforcement == enforcement
    assert (made.condition.type, made.condition.status) == ("DriverLimits", status)
    assert made.condition.reason == reason
    # A GPU without an enforcement in force takes no jobs, and says why.
    assert (made.problem is None) == (enforcement is not None)
    if made.problem is not None:
        assert made.problem.reason == reason
        assert not made.problem.faulted


@pytest.mark.parametrize(
    ("support", "hook", "remedy"),
    [
        (OLD, "Unknown", "install r615 or newer"),
        (V1, "Unknown", "cgroup v2"),
        (NEW, "NotApplied", "nvidia-container-toolkit 1.20.1 or newer"),
        (NEW, "Failed", "nvidia-ctk cdi generate"),
    ],
)
def test_each_missing_capability_says_what_to_do(support: LimitSupport, hook: str, remedy: str):
    probe = ProbeResult(hook, "hook: exit status 1")  # type: ignore[arg-type]
    made = decide(DRIVER, support, probe)
    for message in (made.condition.message, decide(AUTO, support, probe).condition.message):
        assert remedy in message
        assert ("tried again after 20 min" in message) == (support is NEW)
    if hook in ("NotApplied", "Failed"):
        assert "exit status 1" in made.condition.message
    assert made.problem is not None
    assert remedy in made.problem.message


def test_wrong_limits_of_jobs_are_counted_in_the_condition():
    made = decide(AUTO, NEW, ProbeResult("Applied"), wrong=2)
    assert made.enforcement == "Driver"
    assert made.problem is None
    assert (made.condition.status, made.condition.reason) == ("False", "LimitMismatch")
    assert made.condition.message.startswith("2 jobs have")


@pytest.mark.parametrize(
    ("support", "backend"),
    [(NEW, "dmem"), (replace(NEW, dmem=False), "misc"), (OLD, "none"), (V1, "none")],
)
def test_the_backend_is_the_kernels_the_drivers_or_none(support: LimitSupport, backend: str):
    assert support.backend == backend
