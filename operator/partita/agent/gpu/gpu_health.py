"""Monitors the GPU itself: Xids, recovery, and whether it is reachable.

Each memory error that ECC could not correct is an Xid, too, so their counter is not read: 48, with
94 or 95 where the GPU can contain it
(https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/user-visible-statistics.html).

From driver 565 on NVML tells which recovery the GPU needs, and says so when it needs none any more.
With older drivers errors are forgotten after a time without new ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from partita.agent.errors import DeviceAccessLostError, GPULostError, NVMLError, NVMLHangsError
from partita.agent.gpu.xid import CONTAINED, XidAction, xid_action
from partita.agent.health import RELEASED_WITHIN, Health, HealthProblem, Source
from partita.agent.times import AgentTimes

__all__ = ["GPUHealth"]

_RECOVERY: Final = {
    1: "reset the GPU (nvidia-smi --gpu-reset)",
    2: "reboot the node",
    3: "end all peer-to-peer traffic of the GPU",
    4: "end all peer-to-peer traffic of the GPU and reset it (nvidia-smi --gpu-reset)",
    5: "recover the IMEX domain",
    6: "reset the GPU's PCIe bus",
    7: "reboot the system",
}
"""`nvmlDeviceGpuRecoveryAction_t`, https://docs.nvidia.com/deploy/nvml-api/. Its meaning:
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html."""
_CONTAINED: Final = HealthProblem(
    "ECCError",
    f"Xid {CONTAINED}: the memory has failed for one program, the others go on: reset the GPU "
    "(nvidia-smi --gpu-reset) when it has no jobs",
    harmless=True,
)


@dataclass(slots=True)
class GPUHealth:
    """The health of one GPU, except for MPS.

    Parameters
    ----------
    health
        Receives the problems.
    released
        Returns whether the GPU has no allocation any more.
    times
        How long it waits.
    """

    health: Health
    released: Callable[[], bool]
    times: AgentTimes
    sampling_error: NVMLError | None = None
    """Why there is no newer sample; None if NVML has not answered."""
    event_error: NVMLError | None = None
    """Why no events are received any more."""
    _sampled_at: float = 0.0
    _last_error: float = 0.0
    _quiet_needed: float = 0.0
    _tells_recovery: bool = False
    """Whether NVML has told which recovery the GPU needs."""
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    def event(self, xid: int, now: float) -> None:
        """Record an event of the driver.

        Parameters
        ----------
        xid
            The Xid; 0 for an event of another kind.
        now
            Seconds of a monotonic clock.
        """
        if xid == 0:  # another recovery action, which `check` reads
            return
        action = xid_action(xid)
        self._log.warning("Xid", xid=xid, action=action)
        if xid == CONTAINED:
            self._error(XidAction.UNKNOWN, now)
            self.health.set(Source.ECC, _CONTAINED)
        if action not in {XidAction.RESET, XidAction.UNKNOWN}:
            return
        self._error(action, now)
        lost = action is XidAction.RESET
        said = "the GPU needs a reset (nvidia-smi --gpu-reset)" if lost else "no new jobs"
        problem = HealthProblem("XidError", f"Xid {xid}: {said}", faulted=lost)
        self.health.set(Source.XID if lost else Source.UNKNOWN_XID, problem)

    def reading(self, now: float) -> None:
        """Record that threads begin to read the GPU."""
        self._sampled_at = now
        self.sampling_error = self.event_error = None

    def sampled(self, now: float) -> None:
        """Record that NVML has answered with a sample."""
        self._sampled_at, self.sampling_error = now, None

    def answered(self, error: NVMLError | None, now: float) -> bool:
        """Record whether NVML answers; return whether events must be received anew.

        What NVML cannot tell does not count as healthy.

        Parameters
        ----------
        error
            Why NVML could not be asked; None if it answers.

        Raises
        ------
        DeviceAccessLostError
            It is so for longer than a moment: kubelet makes the container anew.
        """
        within = self.times.samples_within
        no_samples = now - self._sampled_at > within
        if no_samples or isinstance(self.sampling_error, GPULostError):
            without = NVMLHangsError(f"NVML has not answered for {within:g} s")
            error = error or self.sampling_error or without
        error = error or self.event_error
        self.health.set(Source.GPU, None if error is None else HealthProblem.of(error))
        if no_samples and isinstance(error, DeviceAccessLostError):
            raise error
        return error is not None and error is self.event_error

    def check(self, recovery: int | None, now: float) -> None:
        """Check which recovery the GPU needs; clear errors after a while.

        Parameters
        ----------
        recovery
            One of pynvml's `NVML_GPU_RECOVERY_ACTION_*`; 0 if it needs none, None if NVML cannot
            tell.
        now
            Seconds of a monotonic clock.
        """
        self._check_recovery(recovery)
        quiet = now - self._last_error
        if quiet >= self._quiet():
            for source in (Source.XID, Source.ECC, Source.UNKNOWN_XID):
                if self.health.set(source, None):
                    self._log.info("no more errors", quiet_for=quiet)
            self._quiet_needed = 0.0

    def _quiet(self) -> float:
        """Return after how many seconds without a new one an error is forgotten.

        A driver that tells whether the GPU needs a recovery is believed, but not at once: the
        operator gets the time to judge the jobs that the error has ended, and the driver changes
        the recovery action after it has reported the Xid
        (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1353: 119, then 154). It waits for
        no time then, only for the locks of all GPUs (`gpuRefreshRecoveryAction` in
        src/nvidia/src/kernel/gpu/gpu.c of that repository).
        """
        if self._tells_recovery:
            return min(RELEASED_WITHIN, self._quiet_needed)
        waits = self.health.has(Source.XID) and not self.released()
        return self._quiet_needed + (RELEASED_WITHIN if waits else 0.0)

    def _error(self, action: XidAction, now: float) -> None:
        self._last_error = now
        times = self.times
        reset = action is XidAction.RESET
        quiet = times.quiet_after_reset if reset else times.quiet_after_unknown
        self._quiet_needed = max(self._quiet_needed, quiet)

    def _check_recovery(self, action: int | None) -> None:
        if action is None and self._tells_recovery:
            return  # NVML has failed: what it told last holds
        self._tells_recovery = action is not None
        if not action:
            self.health.set(Source.RECOVERY, None)
            return
        message = f"the driver asks to {_RECOVERY.get(action, f'recover it (action {action})')}"
        self.health.set(Source.RECOVERY, HealthProblem("RecoveryNeeded", message))
