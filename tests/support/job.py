"""A job that a test submitted to the whole system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partita.models.quantities import format_time
from partita.store.work_queue import utc_now
from support.api import Answer
from support.claimed_env import claimed_env
from support.history import GROUP_PATH
from support.versions import Body

if TYPE_CHECKING:
    from support.system import System

__all__ = ["Job", "container"]


def container(name: str = "main", **more: Any) -> Body:
    """A container of a job."""
    return {"name": name, "image": "example.org/image:1", **more}


@dataclass(frozen=True)
class Job:
    """A job that a test submitted."""

    system: System
    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        return f"{GROUP_PATH}/namespaces/{self.namespace}/sharedgpujobs/{self.name}"

    @property
    def body(self) -> Body | None:
        """The job as it is now; None once it is gone."""
        return self.system.history.get("sharedgpujobs", self.name, self.namespace)

    @property
    def status(self) -> Body:
        status: Body = (self.body or {}).get("status", {})
        return status

    @property
    def outcomes(self) -> list[str]:
        """How its attempts ended, "" for one that runs."""
        return [attempt.get("outcome", "") for attempt in self.status.get("attempts", [])]

    def pod(self, attempt: int = 1) -> Body | None:
        """The Pod of an attempt as it is now; an earlier job may have had its name."""
        pod = self.system.history.get("pods", f"{self.name}-{attempt}", self.namespace)
        made = (version["metadata"]["uid"] for version in self._made(attempt))
        return pod if pod is not None and pod["metadata"]["uid"] in made else None

    def made(self, attempt: int = 1) -> Body:
        """The Pod of an attempt as it was made."""
        return next(self._made(attempt))

    def _made(self, attempt: int) -> Iterator[Body]:
        pods = self.system.history.versions("pods", f"{self.name}-{attempt}", self.namespace)
        return filter(self._owns, pods)

    def _owns(self, pod: Body) -> bool:
        # The UID of a job that was submitted in another way is not known.
        return not self.uid or any(
            o["uid"] == self.uid for o in pod["metadata"].get("ownerReferences") or ()
        )

    def holds(self, server: Body) -> bool:
        """Whether the ledger of a GPU has an allocation of it."""
        return bool(self._claim(server))

    def usage(self, server: Body) -> Body:
        """Return what the agent of a GPU tells of it; empty if nothing."""
        jobs: Body = (server["status"].get("usage") or {}).get("jobs") or {}
        return jobs.get(self._claim(server)) or {}

    def _claim(self, server: Body) -> str:
        """Return the UID of its claim in the ledger of a GPU; empty if it has none there."""
        entries = server["status"].get("allocations", {})
        return next((uid for uid, e in entries.items() if e.get("jobUID") == self.uid), "")

    def env(self, attempt: int = 1) -> dict[str, str]:
        """The variables of the first container of an attempt."""
        return claimed_env(self.system.history, self.made(attempt))

    async def until(self, holds: Callable[[Body], Any]) -> Body:
        """Wait for the job's status to be so, and for what was written before."""
        history = self.system.history
        await history.until(
            lambda: self.body is not None and holds(self.status), what=lambda: self.body
        )
        status, body = self.status, self.body
        assert body is not None
        await history.reach(body, "pods", "resourceclaims", "gpuservers")
        return status

    async def phase(self, *phases: str) -> Body:
        """Wait for one of these phases."""
        return await self.until(lambda status: status.get("phase") in phases)

    async def waits(self, reason: str, *words: str) -> str:
        """Wait until the status says that it waits for this reason, in words that have these."""
        status = await self.until(
            lambda s: s.get("reason") == reason and all(w in s.get("message", "") for w in words)
        )
        return str(status["message"])

    async def succeeds(self) -> Body:
        """Wait for its end, which is to be a good one."""
        status = await self.phase("Succeeded", "Failed")
        assert status["phase"] == "Succeeded", status
        return status

    async def fails(self) -> Body:
        """Wait for its end, which is to be a bad one."""
        status = await self.phase("Succeeded", "Failed")
        assert status["phase"] == "Failed", status
        return status

    async def runs(self, attempt: int = 1) -> Body:
        """Wait until the status says that an attempt runs, or is over: a short one soon is."""

        def has_run(status: Body) -> bool:
            last = (status.get("attempts") or [{"number": 0}])[-1]
            if last["number"] == attempt:
                return status["phase"] == "Running" or bool(last.get("outcome"))
            return bool(last["number"] > attempt)

        return await self.until(has_run)

    async def end(self, attempt: int = 1, *, at: str = "") -> None:
        """Do what kubelet does when the program of an attempt ends well.

        Parameters
        ----------
        at
            When it ended by its node's clock; empty for now.
        """
        pod, at = self.pod(attempt), at or format_time(utc_now())
        assert pod is not None
        ended = {"startedAt": at, "finishedAt": at, "exitCode": 0, "reason": "Completed"}
        container = {
            **pod["status"]["containerStatuses"][0],
            "ready": False,
            "started": False,
            "state": {"terminated": ended},
        }
        status = {"phase": "Succeeded", "containerStatuses": [container]}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{attempt}/status"
        (await self.system.api.patch(path, {"status": status})).ok()

    async def gone(self) -> None:
        """Wait until it is deleted."""
        await self.system.history.until(lambda: self.body is None, what=lambda: self.body)

    async def change(self, **spec: Any) -> Answer:
        """Change fields of its spec."""
        return await self.system.api.patch(self.path, {"spec": spec})

    async def delete(self) -> None:
        (await self.system.api.delete(self.path)).ok()
