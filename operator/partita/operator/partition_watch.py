"""kopf watches the GPUPartitions: few objects, which people write.

It finds and follows the resource, connects again after errors with growing pauses, renews
credentials, and keeps an error about one partition from the others. It reports what exists and what
changes, but neither that a list is complete nor what was deleted during a gap in a watch. So the
operator lists the partitions once before kopf starts (`watches`), and takes a partition for deleted
if the API server says so when its status is written (`partitions.status_writer`).
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from partita.informer.informer import Apply
from partita.kube.connect import Access
from partita.kube.kinds import PARTITIONS
from partita.operator.task_shutdown import end

__all__ = ["connection", "watch_partitions"]

USUAL_RECURSION_LIMIT = sys.getrecursionlimit()
"""Read before any operator raises it: several may run in one process, in tests."""
RECURSION_LIMIT = 11_000
"""Python's recursion limit while kopf runs. kopf reads objects with Python's own JSON parser, which
recurses for each level, and the API server accepts 10,000 levels (`maxNestingDepth` of Go's
encoding/json), in `managedFields` for example. Python's usual limit is 1,000; then one such
partition would end kopf, and with it each operator that starts."""


async def watch_partitions(
    apply: Apply, access: Callable[[], Awaitable[Access]], stop: asyncio.Event
) -> None:
    """Watch the GPUPartitions until the operator is stopped, by a signal or by `stop`.

    Parameters
    ----------
    apply
        Called with each partition, and with each change to one.
    access
        Returns the current connection settings of the API server.
    stop
        Set at the end, too.

    Raises
    ------
    Exception
        kopf cannot continue, for example because the CRD was deleted.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(await access())

    @kopf.on.event(PARTITIONS.group, PARTITIONS.version, PARTITIONS.plural, registry=registry)
    async def partition_changed(event: Any, **_: Any) -> None:
        apply(event["object"], deleted=event["type"] == "DELETED")

    # Not kopf.operator(): at its end it waits for, and then cancels, every task of the event loop
    # that was created after it, including those of other components.
    tasks = await kopf.spawn_tasks(
        registry=registry, settings=_settings(), standalone=True, clusterwide=True, stop_flag=stop
    )
    sys.setrecursionlimit(RECURSION_LIMIT)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(lambda: tasks)
        stop.set()
        sys.setrecursionlimit(USUAL_RECURSION_LIMIT)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


def connection(access: Access) -> kopf.ConnectionInfo:
    """Let kopf connect to the API server as Partita's own client does.

    Inside a Pod kopf's own login needs the cluster's DNS, which Partita's client does not use.
    """
    scheme, _, token = access.authorization.partition(" ")
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.authority,
        insecure=not access.verified,
        certificate_path=access.certificate,
        private_key_path=access.key,
        scheme=scheme.title() or None,
        token=token or None,
        proxy_url=access.proxy,
    )


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Partita writes its own Events
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.scanning.disabled = True  # it may not watch CRDs: `crd_check` does that
    return settings
