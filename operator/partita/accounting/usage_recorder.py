"""The records of usage: a ConfigMap for each day, in the operator's namespace."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import structlog

from partita.accounting.daily_usage import DailyUsage
from partita.accounting.usage_meter import UsageMeter
from partita.constants import COMPONENT_USAGE, LABEL_COMPONENT
from partita.kube.client import CONFIG_MAPS, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)
from partita.kube.operator_lease import operator_namespace
from partita.store.state import State

__all__ = ["RETENTION_DAYS", "UsageRecorder", "usage_config_maps", "usage_for_order"]

RETENTION_DAYS: Final = 90
"""Days for which records are kept."""


Json = dict[str, Any]


async def usage_config_maps(kube: Kube, namespace: str) -> list[Json]:
    """Return the ConfigMaps with the records of usage.

    Raises
    ------
    KubernetesError
        They cannot be listed.
    """
    selector = f"{LABEL_COMPONENT}={COMPONENT_USAGE}"
    items, _ = await kube.list(CONFIG_MAPS, namespace=namespace, label_selector=selector)
    return items


async def usage_for_order(kube: Kube, state: State) -> list[DailyUsage]:
    """Return the records of usage if the order of a partition depends on them.

    Raises
    ------
    KubernetesError
        They cannot be listed.
    """
    found: list[DailyUsage] = []
    if any(partition.spec.fairness.half_life for partition in state.partitions.values()):
        for item in await usage_config_maps(kube, operator_namespace()):
            with suppress(ValueError):  # the operator deletes this one
                found.append(DailyUsage.parse(item))
    return found


@dataclass
class UsageRecorder:
    """Writes what the meter counts, and deletes records that are too old.

    The amounts of a day and the time until which they are complete are one object. So after a crash
    at any point the next leader continues at this time, and nothing is counted twice.

    Parameters
    ----------
    namespace
        The operator's namespace.
    """

    kube: Kube
    namespace: str
    meter: UsageMeter
    now: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._resumed = False
        self._written: dict[date, str] = {}
        """The amounts of each day that this process has written."""
        self._log = structlog.get_logger().bind(part="usage")

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            try:
                if not self._resumed:
                    await self._resume()
                await self._write()
            except (ConflictError, AlreadyExistsError, NotFoundError) as error:
                # Another program has changed a record: continue with what is there.
                self._resumed = False
                self._log.warning("usage record was changed", error=str(error))
            except KubernetesError as error:
                self._log.warning("usage not recorded yet", error=str(error))
            await asyncio.sleep(self.kube.times.write_usage)

    async def _resume(self) -> None:
        """Continue after the newest record."""
        records = await self._records()
        self._written = {}
        self.meter.resume(records, self.now())
        self._resumed = True

    async def _records(self) -> list[DailyUsage]:
        """Return the records of the retention period, and delete all others."""
        oldest = self.now().date() - timedelta(days=RETENTION_DAYS)
        records = []
        for item in await usage_config_maps(self.kube, self.namespace):
            name = item["metadata"]["name"]
            try:
                record = DailyUsage.parse(item)
            except ValueError as error:
                self._log.error("invalid usage record deleted", name=name, problem=str(error))
                await self._delete(item)
                continue
            if record.day < oldest:
                await self._delete(item)
            else:
                records.append(record)
        return records

    async def _write(self) -> None:
        self.meter.read(self.now())
        days = sorted(self.meter.days)
        for day in days:
            await self._write_day(self.meter.days[day])
        if len(days) > 1:
            self.meter.forget(days[:-1])
            await self._records()

    async def _write_day(self, usage: DailyUsage) -> None:
        data = usage.dump()
        if self._written.get(usage.day) == data["usage.csv"]:
            return
        meta: Json = {
            "name": f"partita-usage-{usage.day.isoformat()}",
            "namespace": self.namespace,
            "labels": {LABEL_COMPONENT: COMPONENT_USAGE},
        }
        if usage.resource_version:
            written = await self.kube.patch(
                CONFIG_MAPS,
                meta["name"],
                {"data": data},
                namespace=self.namespace,
                resource_version=usage.resource_version,
            )
        else:
            written = await self.kube.create(CONFIG_MAPS, {"metadata": meta, "data": data})
        usage.resource_version = written["metadata"]["resourceVersion"]
        self._written[usage.day] = data["usage.csv"]

    async def _delete(self, item: Json) -> None:
        meta = item["metadata"]
        await self.kube.delete(CONFIG_MAPS, meta["name"], self.namespace, uid=meta["uid"])
