"""What the operator writes about Pods with claims, and its end after each of its writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster.cluster import Cluster
from cluster.jobs import SYSTEM
from support.api import Api

__all__ = ["OperatorWrites", "kill_operator", "kill_processes"]

WRITES = {"create", "delete", "patch", "update"}
RESOURCES = {"gpuservers", "pods", "resourceclaims"}
OPERATOR = f"system:serviceaccount:{SYSTEM}:partita-operator"
LOOK_EVERY = 0.02
"""Seconds between two looks at the audit log."""


class OperatorWrites:
    """The operator's writes from now on, as the API server's audit log has them."""

    def __init__(self, audit_log: Path) -> None:
        self._log = audit_log
        self._offset = audit_log.stat().st_size

    def more(self) -> int:
        """Return how many writes came since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            lines, end, _ = log.read().rpartition(b"\n")
        self._offset += len(lines + end)
        return sum(map(_counts, lines.splitlines()))


def _counts(line: bytes) -> bool:
    event = json.loads(line)
    about = event.get("objectRef") or {}
    return (
        event["user"]["username"] == OPERATOR
        and event["verb"] in WRITES
        and about.get("resource") in RESOURCES
    )


async def kill_operator(cluster: Cluster, api: Api, kills: list[int]) -> None:
    """Kill the operator after each of its writes, until this is cancelled.

    Parameters
    ----------
    kills
        Gets the number of writes before each kill: one, and those that it made until it was dead.
    """
    killed = ""
    while True:
        container = await _running(api, killed)
        writes = OperatorWrites(cluster.plane.audit_log)
        while not (seen := writes.more()):
            await asyncio.sleep(LOOK_EVERY)
        kill_processes(container)
        kills.append(seen + writes.more())
        killed = container


async def _running(api: Api, killed: str) -> str:
    """Wait until another container of the operator runs; return its ID."""

    def other(pods: dict[str, Any]) -> str:
        statuses = [s for pod in pods["items"] for s in pod["status"].get("containerStatuses", ())]
        found = (
            status["containerID"].removeprefix("containerd://")
            for status in statuses
            if status["name"] == "operator" and "running" in status["state"]
        )
        return next((one for one in found if one != killed), "")

    return other(await api.until(f"/api/v1/namespaces/{SYSTEM}/pods", other))


def kill_processes(container: str) -> None:
    """Kill the processes of a container, which its cgroup names, at once."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if container in (process / "cgroup").read_text():
                os.kill(int(process.name), signal.SIGKILL)
