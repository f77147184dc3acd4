"""Watches the GPU itself: Xids, memory errors, temperature, and whether it is there at all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from partita.agent.errors import NVMLError
from partita.agent.health import QUIET, Health, Source, Trouble, XidKind, xid_kind
from partita.agent.mps_health import RELEASED_WITHIN
from partita.agent.nvml import GPUEvent, NVMLDevice, close_library, open_library

__all__ = ["SILENT_AFTER", "GPUWatch", "Vitals", "probe"]

SILENT_AFTER: Final = 10.0
"""Seconds without a sample after which the driver counts as hung."""


@dataclass(slots=True)
class GPUWatch:
    """One GPU as the agent sees it.

    Parameters
    ----------
    health
        Where it is told what is wrong.
    released
        Tells whether no job is allocated any more.
    quiet
        Seconds after which an Xid is forgiven, by what it means.
    """

    health: Health
    released: Callable[[], bool]
    quiet: Mapping[XidKind, float] = field(default_factory=lambda: QUIET)
    _since: float = 0.0
    """When the last fault was seen."""
    _lost_since: float | None = None
    _wait: float = 0.0
    _errors: int | None = None
    """Memory errors that are known."""
    _log: Any = field(default_factory=lambda: structlog.get_logger(__name__))

    def event(self, event: GPUEvent, now: float) -> bool:
        """Take an event; tell whether it changed what is wrong.

        Parameters
        ----------
        now
            Seconds, of a clock that only goes forward.
        """
        if event.xid == 0:
            # A memory error: the counter tells how many there are.
            return False
        kind, meaning = xid_kind(event.xid)
        self._log.warning("Xid", xid=event.xid, meaning=meaning, kind=kind)
        if kind is XidKind.APPLICATION:
            return False
        self._since, self._wait = now, max(self._wait, self.quiet[kind])
        remedy = "; it needs a reset (nvidia-smi --gpu-reset)" if kind is XidKind.RESET else ""
        message = f"Xid {event.xid}: {meaning}{remedy}"
        return self.health.note(Source.XID, Trouble("XidError", message, faulted=True))

    def lost(self, message: str, now: float) -> bool:
        """Note that the driver cannot reach it; tell whether that is new."""
        if self._lost_since is None:
            self._lost_since = now
        return self.health.note(Source.GPU, Trouble("GPULost", message, faulted=True))

    def silent(self) -> bool:
        """Note that the driver does not answer; tell whether that is new."""
        if self._lost_since is not None:
            return False
        message = f"NVML has not answered for {SILENT_AFTER:g} s"
        return self.health.note(Source.GPU, Trouble("NVMLHangs", message))

    def answers(self) -> None:
        """Note that the driver answers; a GPU that was lost comes back by `found`."""
        if self._lost_since is None:
            self.health.clear(Source.GPU)

    @property
    def is_lost(self) -> bool:
        """Whether it has to be found again."""
        return self._lost_since is not None

    def found(self, now: float) -> None:
        """Note that a lost one was found, and answers; the jobs it had are released first."""
        since = self._lost_since
        if since is not None and (self.released() or now - since >= RELEASED_WITHIN):
            self._lost_since = None
            self.health.clear(Source.GPU)
            self._log.info("the GPU is back")

    def look(self, vitals: "Vitals", now: float) -> None:
        """Take what changes slowly; and forgive what has long been quiet."""
        self._look_at_errors(vitals.errors, now)
        self._look_at_temperature(vitals)
        quiet = now - self._since >= self._wait
        released = self.released() or now - self._since >= self._wait + RELEASED_WITHIN
        if quiet and released:
            for source in (Source.XID, Source.ECC):
                if self.health.clear(source):
                    self._log.info("no more errors", quiet_for=now - self._since)
            self._wait = 0.0

    def _look_at_errors(self, errors: int | None, now: float) -> None:
        if errors is None:
            return
        if self._errors is not None and errors > self._errors:
            self._since, self._wait = now, max(self._wait, self.quiet[XidKind.FAULT])
            message = f"{errors - self._errors} memory errors that ECC could not correct"
            self.health.note(Source.ECC, Trouble("ECCError", message, faulted=True))
        # A reset sets the counter back.
        self._errors = errors

    def _look_at_temperature(self, vitals: "Vitals") -> None:
        now, limit = vitals.temperature, vitals.shutdown
        if now is None or limit is None or now < limit:
            self.health.clear(Source.TEMPERATURE)
            return
        message = f"{now} degrees Celsius, and it shuts down at {limit}: no new jobs until it cools"
        self.health.note(Source.TEMPERATURE, Trouble("TooHot", message))


@dataclass(frozen=True, slots=True)
class Vitals:
    """What changes slowly. None stands for what the GPU cannot tell."""

    errors: int | None
    """Memory errors that ECC could not correct."""
    temperature: int | None
    """Degrees Celsius."""
    shutdown: int | None
    """Degrees at which it shuts down."""

    @classmethod
    def of(cls, gpu: NVMLDevice) -> "Vitals":
        """Read them; blocks."""
        return cls(gpu.uncorrected_errors(), gpu.temperature(), gpu.shutdown_temperature())


def probe(uuid: str) -> NVMLDevice:
    """Find a GPU that was lost, by a library that is opened anew, and make sure that it answers.

    Raises
    ------
    NVMLError
        If it does not.
    """
    close_library()
    open_library()
    gpu = NVMLDevice.of(uuid)
    if gpu.uuid() != uuid:
        raise NVMLError(f"{uuid} is another GPU now")
    gpu.memory_used()
    return gpu
