"""Two operators with one Lease, which are killed, stopped, put to sleep, and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos.verdict import LeaseView, Written
from support.clusters import ApiServer
from support.history import History
from support.operator_process import Forge, OperatorProcess
from support.proxy import FaultProxy

__all__ = ["LEASE", "LEASE_SECONDS", "Operator", "Operators"]

LEASE_SECONDS = 5.0
"""Of a run's Lease: long enough for a busy machine, short enough for hundreds of kills."""
LEASE = "partita-operator"
ENDS_WITHIN = 30.0
"""Seconds that kubelet gives a Pod to end by itself."""
TAKEN_OVER_WITHIN = 60.0
"""Seconds: far more than any Lease of a run lasts."""
REFUSED = "operator ended: ForbiddenError"
"""An API server that has just started knows no roles yet: who meets it then is started again."""
LEADS = '"leading"'
LOST = "the lease is lost to"
_ODD = re.compile(r'"part".*"level": "(error|critical)"|Traceback')
"""kopf's own errors, which have no part, are about the network."""


@dataclass(eq=False)
class Operator:
    """One operator process and its own way to the API server."""

    identity: str
    proxy: FaultProxy
    process: OperatorProcess
    woken: float | None = None
    """When it was woken after its Lease had gone to another."""
    expected: bool = False
    """Whether somebody ended it."""

    @property
    def alive(self) -> bool:
        """Whether it runs, or sleeps."""
        return not self.process.ended.done()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still is."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)


@dataclass(eq=False)
class Operators:
    """Keeps two operators running: whoever ends is started again in a moment.

    Parameters
    ----------
    history
        Which has the Lease as well.
    folder
        For logs and kubeconfigs.
    """

    server: ApiServer
    forge: Forge
    history: History
    folder: Path
    running: list[Operator] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """What operators did that none should."""
    started: int = 0

    @contextlib.asynccontextmanager
    async def keep(self, *slots: str) -> AsyncIterator[None]:
        """Run one operator in each slot while the block runs."""
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self._keep(slot, stop)) for slot in slots]
        try:
            yield
        finally:
            stop.set()
            for operator in list(self.running):
                operator.expected = True
                operator.signal(signal.SIGCONT)
                operator.signal(signal.SIGTERM)
            for operator in list(self.running):
                await self._until_ended(operator)
            await asyncio.gather(*tasks)

    async def _keep(self, slot: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.started += 1
            identity = f"{slot}-{self.started}"
            folder = self.folder / identity
            folder.mkdir()
            async with FaultProxy(self.server) as proxy:
                process = await self.forge.start(
                    proxy.write_kubeconfig(folder),
                    folder / "log",
                    identity=identity,
                    lease_duration=LEASE_SECONDS,
                )
                operator = Operator(identity, proxy, process)
                self.running.append(operator)
                if stop.is_set():
                    operator.signal(signal.SIGKILL)
                status = await process.ended
                self.running.remove(operator)
            self._note_end(operator, status)

    def _note_end(self, operator: Operator, status: int) -> None:
        self.written += _written(operator)
        log = operator.process.log
        if not operator.expected and LOST not in log and REFUSED not in log:
            self.odd.append(f"{operator.identity} ended by itself with {status}: {log[-600:]}")
        self.odd += [
            f"{operator.identity} logs: {line[:2000]}"
            for line in log.splitlines()
            if _ODD.search(line)
        ]

    def writes(self) -> list[Written]:
        """Return what operators wrote since `forget_writes`."""
        return [*self.written, *(write for each in self.running for write in _written(each))]

    def forget_writes(self) -> None:
        """Forget what was written so far: the Lease of that time is forgotten as well."""
        self.written.clear()
        for each in self.running:
            each.proxy.writes.clear()

    # Who is who.

    def lease(self) -> LeaseView:
        """The Lease as it was seen last."""
        body = self.history.get("leases", LEASE, "partita-system")
        return LeaseView.of(body, 0.0)

    @property
    def leader(self) -> Operator | None:
        """The one that the Lease names; None while it names nobody that lives."""
        holder = self.lease().holder
        return next((o for o in self.running if o.identity == holder), None)

    @property
    def standby(self) -> Operator | None:
        """Another than the leader."""
        leader = self.leader
        return next((o for o in self.running if o is not leader), None)

    async def kill(self, operator: Operator | None) -> bool:
        """Kill one; tell whether there was one."""
        return await self._end(operator, signal.SIGKILL)

    async def stop(self, operator: Operator | None) -> bool:
        """End one as Kubernetes does: after 30 s it is killed."""
        return await self._end(operator, signal.SIGTERM)

    async def _end(self, operator: Operator | None, number: signal.Signals) -> bool:
        if operator is None or operator.expected:
            return False
        operator.expected = True
        if number is signal.SIGKILL:
            operator.proxy.sever()  # what it has sent, and waits here, goes with it
        operator.signal(number)
        await self._until_ended(operator)
        return True

    async def _until_ended(self, operator: Operator) -> None:
        # Not cancelled when it is too late: who starts the next one waits for it as well.
        _, late = await asyncio.wait({operator.process.ended}, timeout=ENDS_WITHIN)
        if late:
            self.odd.append(f"{operator.identity} has not ended within {ENDS_WITHIN:g} s")
            operator.expected = True
            operator.signal(signal.SIGKILL)

    async def put_to_sleep(self, operator: Operator | None, pause: float) -> bool:
        """Stop one until another leads, and a little longer; it must end when it is woken."""
        if operator is None or operator.expected:
            return False
        operator.signal(signal.SIGSTOP)
        try:
            # For longer than its Lease lasts: it may have been taken from it by hand before that.
            await asyncio.sleep(LEASE_SECONDS + pause)
            await self.history.until(
                lambda: self.lease().holder not in {"", operator.identity},
                seconds=TAKEN_OVER_WITHIN,
                what=lambda: self.history.all("leases"),
            )
        finally:
            # All that it had sent before has long been taken by its proxy.
            operator.woken = asyncio.get_running_loop().time()
            operator.signal(signal.SIGCONT)
        if LEADS in operator.process.log:  # else it slept before it heard that it does
            await self._until_ended(operator)
        return True

    async def stun(self, operator: Operator | None, pause: float) -> bool:
        """Stop one for a moment."""
        if operator is None or operator.expected:
            return False
        operator.signal(signal.SIGSTOP)
        await asyncio.sleep(pause)
        operator.signal(signal.SIGCONT)
        return True


def _written(operator: Operator) -> list[Written]:
    return [
        Written(write.at, operator.identity, write.request.kind, operator.woken)
        for write in operator.proxy.writes
        if write.took_effect
    ]
