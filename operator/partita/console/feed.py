"""Follows the cluster as far as the page shows it: three kinds, read by list and watch."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from kubernetes.aio.client import ApiClient

from partita.console.page_state import Scene, scene_of
from partita.informer.state import State
from partita.kube.client import JOBS, PARTITIONS, SERVERS, Kind, Kube
from partita.kube.errors import GoneError, KubernetesError
from partita.kube.watch import watch

__all__ = ["Feed"]

LEAST_PAUSE = 0.25
"""Seconds between two versions: a burst of changes is one update."""
RETRY_AFTER = 2.0
"""Seconds before a watch that broke is begun again."""


class Feed:
    """The cluster's state, kept up to date, and what is to be seen of it.

    Parameters
    ----------
    api
        A client that may list and watch partitions, GPUServers and jobs; the caller closes it.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._kube = Kube(api)
        self.state = State()
        self._version = 0
        self._announced = asyncio.Event()
        self._announced_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._scene: Scene | None = None
        self.closed = False
        """Whether nothing newer will come."""
        self._broken: dict[Kind, datetime] = {}
        """Since when a kind is not followed."""
        self._applies: dict[Kind, Callable[..., None]] = {
            PARTITIONS: self.state.apply_partition,
            SERVERS: self.state.apply_server,
            JOBS: self.state.apply_job,
        }
        self._log = structlog.get_logger().bind(part="console")

    @property
    def version(self) -> int:
        """Grows with each change, but in a burst only every `LEAST_PAUSE`."""
        return self._version

    @property
    def scene(self) -> Scene:
        """What one may see of this version who may see all; made once for all viewers."""
        if self._scene is None:
            self._scene = scene_of(self.state, min(self._broken.values(), default=None))
        return self._scene

    async def newer(self, version: int) -> None:
        """Wait for a later version than this, or until it is closed."""
        while self._version <= version and not self.closed:
            await self._announced.wait()

    def close(self) -> None:
        """Let nobody wait any longer."""
        self.closed = True
        self._announced.set()

    async def load(self) -> dict[Kind, str]:
        """List everything once, and return the lists' versions.

        Raises
        ------
        KubernetesError
            If a list cannot be had.
        """
        versions = await asyncio.gather(*map(self._list, self._applies))
        return dict(zip(self._applies, versions, strict=True))

    async def run(self, versions: dict[Kind, str]) -> None:
        """Follow all kinds for ever, from what `load` returned."""
        async with asyncio.TaskGroup() as tasks:
            for kind, version in versions.items():
                tasks.create_task(self._follow(kind, version))

    async def _list(self, kind: Kind) -> str:
        items, version = await self._kube.list(kind)
        for item in items:
            self._applies[kind](item)
        uids = {item["metadata"]["uid"] for item in items}
        self.state.forget_missing(kind.plural, uids, int(version))
        self._note()
        return version

    async def _follow(self, kind: Kind, version: str) -> None:
        apply = self._applies[kind]
        while True:
            try:
                version = version or await self._list(kind)
                if self._broken.pop(kind, None):
                    self._note()
                async for event, body in watch(self._api, kind, version):
                    version = body["metadata"]["resourceVersion"]
                    if event != "BOOKMARK":
                        apply(body, deleted=event == "DELETED")
                        self._note()
            except GoneError:
                version = ""
            except KubernetesError as error:
                self._log.warning("not followed", kind=kind.plural, error=str(error))
                self._broken.setdefault(kind, datetime.now(UTC))
                self._note()
                await asyncio.sleep(RETRY_AFTER)

    def _note(self) -> None:
        # The operator's loop would take what is dirty; nobody does here.
        self.state.dirty.take_jobs()
        self.state.dirty.take_partitions()
        if self._timer is None and not self.closed:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._announced_at + LEAST_PAUSE)
            self._timer = loop.call_at(at, self._announce)

    def _announce(self) -> None:
        self._timer = None
        self._announced_at = asyncio.get_running_loop().time()
        self._version += 1
        self._scene = None
        self._announced.set()
        self._announced.clear()
