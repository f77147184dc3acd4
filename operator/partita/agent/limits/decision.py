"""Decides what limits the GPU memory of jobs: the driver, or MPS and the agent.

The driver's limits need driver r615, cgroup v2, and a container toolkit that sets them for each
container. The first two are looked up. Only a container shows the third (`probe`).
"""

from dataclasses import dataclass
from typing import Final, Literal

from partita.agent.health import HealthProblem, condition
from partita.models import Condition
from partita.models.sharing import Enforcement

__all__ = ["RETRY_AFTER", "LimitDecision", "LimitSupport", "ProbeResult", "decide"]

Hook = Literal["Applied", "NotApplied", "Failed", "Unknown"]

RETRY_AFTER: Final = 1200.0
"""Seconds after which limits that did not work are tried again. A toolkit may be too old for ever,
and each try is a Pod."""
CONDITION: Final = "DriverLimits"
"""Type of the condition."""
_TOOLKIT: Final = (
    "install nvidia-container-toolkit 1.20.1 or newer on the node, and write its CDI file again "
    "(nvidia-ctk cdi generate)"
)


@dataclass(frozen=True, slots=True)
class LimitSupport:
    """What the driver and the node have for memory limits of cgroups."""

    driver: str
    """The driver's version."""
    functions: bool
    """Whether the driver has the functions of memory limits."""
    cgroups: int
    """Version of the node's cgroups."""
    dmem: bool
    """Whether the driver uses the kernel's controller dmem."""

    @property
    def backend(self) -> Literal["dmem", "misc", "none"]:
        """How the driver limits the memory of a cgroup.

        A driver that does not use dmem does its own accounting, `misc`
        (https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Backends"). That the
        limits are turned off altogether is shown only by a container.
        """
        if self.missing is not None:
            return "none"
        return "dmem" if self.dmem else "misc"

    @property
    def missing(self) -> HealthProblem | None:
        """What prevents limits of the driver on this node, before any container has shown it."""
        if not self.functions:
            message = (
                f"driver {self.driver} cannot limit the GPU memory of a container: install r615 "
                "or newer"
            )
            return HealthProblem("NoDriverSupport", message)
        if self.cgroups != 2:
            message = (
                "the node uses cgroup v1, with which the driver cannot limit the GPU memory of a "
                "container: start the node with cgroup v2"
            )
            return HealthProblem("CgroupV1", message)
        return None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe Pod has shown about the container toolkit."""

    hook: Hook
    detail: str = ""
    """What was observed, as the start of a sentence."""


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """What limits the GPU memory of jobs, and why."""

    enforcement: Literal["Driver", "Client"] | None
    """None until it is known, and if what is required does not work."""
    condition: Condition
    """Whether the driver limits containers, and what to do if not."""
    problem: HealthProblem | None = None
    """Why the GPU takes no jobs; None if it does."""


def decide(
    requested: Enforcement, support: LimitSupport, probe: ProbeResult, wrong: int = 0
) -> LimitDecision:
    """Decide what limits the GPU memory of jobs.

    Parameters
    ----------
    requested
        `sharing.enforcement` of the partition.
    support
        What the driver and the node have.
    probe
        What a probe Pod has shown.
    wrong
        Number of jobs with another limit than they should have.
    """
    if requested is Enforcement.CLIENT:
        reason, message = "NotRequested", "sharing.enforcement of the partition is Client"
        return LimitDecision("Client", condition(CONDITION, "False", reason, message))
    problem = support.missing or _shown(requested, probe)
    if problem is None and wrong:
        jobs = "1 job has" if wrong == 1 else f"{wrong} jobs have"
        message = (
            f"{jobs} another memory limit than expected (see their Events); the agent terminates "
            "processes above it"
        )
        return LimitDecision("Driver", condition(CONDITION, "False", "LimitMismatch", message))
    if problem is None:
        return LimitDecision("Driver", condition(CONDITION, "True", "Proven"))
    if problem.reason == "LimitsNotProven":
        shown = condition(CONDITION, "Unknown", problem.reason, problem.message)
        return LimitDecision(None, shown, problem)
    shown = condition(CONDITION, "False", problem.reason, problem.message)
    if requested is Enforcement.AUTO:
        return LimitDecision("Client", shown)
    required = f"sharing.enforcement is Driver, but {problem.message}"
    return LimitDecision(None, shown, HealthProblem(problem.reason, required))


def _shown(requested: Enforcement, probe: ProbeResult) -> HealthProblem | None:
    """Return what a probe has shown to be missing; None if limits work."""
    if probe.hook == "Applied":
        return None
    if probe.hook == "Unknown":
        message = "a probe Pod shows whether the driver limits the GPU memory of containers"
        return HealthProblem("LimitsNotProven", message)
    again = f"this is tried again after {RETRY_AFTER / 60:g} min"
    if requested is Enforcement.AUTO:
        again += " on a GPU without jobs"
    if probe.hook == "NotApplied":
        detail = probe.detail or "the container of a probe Pod had no memory limit"
        return HealthProblem("HookMissing", f"{detail}: {_TOOLKIT}; {again}")
    detail = probe.detail or "the container of a probe Pod was not created"
    message = (
        f"{detail}: the container toolkit must be able to set limits of the driver ({_TOOLKIT}); "
        f"{again}"
    )
    return HealthProblem("HookFailed", message)
