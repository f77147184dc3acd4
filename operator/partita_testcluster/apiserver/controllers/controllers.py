"""Runs the controllers: each change marks objects, and a task looks at each marked object."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from partita_testcluster.apiserver.controllers.claims import (
    claim_names,
    sync_claim,
    sync_claims_of_pod,
)
from partita_testcluster.apiserver.controllers.jobs import TRACKING, sync_job, sync_orphan
from partita_testcluster.apiserver.controllers.objects import Obj, Objects
from partita_testcluster.apiserver.controllers.replica_sets import sync_deployment, sync_replica_set
from partita_testcluster.apiserver.controllers.stateful_sets import sync_stateful_set
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.marks import MarkedObjects
from partita_testcluster.apiserver.resources import ServedResource
from partita_testcluster.apiserver.store import Collection, Store, WatchEvent
from partita_testcluster.apiserver.writes import Writer

__all__ = ["Controllers"]

log = structlog.get_logger(__name__)


def _sync_pod(objects: Objects, pod: Obj) -> None:
    sync_claims_of_pod(objects, pod)
    sync_orphan(objects, pod)


_SYNCS: dict[str, Callable[[Objects, Obj], None]] = {
    "deployments": sync_deployment,
    "jobs": sync_job,
    "pods": _sync_pod,
    "replicasets": sync_replica_set,
    "resourceclaims": sync_claim,
    "statefulsets": sync_stateful_set,
}


_OF_PODS = (b'"resourceClaims"', f'"{TRACKING}"'.encode())
"""What only Pods have that a controller of Pods themselves is for."""


class Controllers:
    """All controllers of one API server.

    Parameters
    ----------
    resources
        Returns all served kinds.
    """

    def __init__(
        self, store: Store, writer: Writer, resources: Callable[[], list[ServedResource]]
    ) -> None:
        self._store = store
        self._objects = Objects(store, writer, resources)
        self._marked = MarkedObjects()
        watched = {*_SYNCS, "resourceclaimtemplates"}
        self._plurals = {self._objects.resource(p).collection: p for p in watched}

    async def run(self) -> None:
        """Run the controllers until cancelled."""
        await self._marked.process(self._look)

    def observe(self, collection: Collection, event: WatchEvent) -> None:
        """Mark the objects that a change may concern."""
        if (plural := self._plurals.get(collection)) is not None:
            self._marked.mark(*self._concerned(plural, event))

    def _concerned(self, plural: str, event: WatchEvent) -> Iterator[str]:
        record = event.record
        if plural == "resourceclaimtemplates":
            name = f'"resourceClaimTemplateName":"{record.name}"'.encode()
            pods = self._objects.resource("pods").collection.records(record.namespace)
            yield from (pod.uid for pod in pods if name in pod.raw)
            return
        if plural != "pods" or any(word in record.raw for word in _OF_PODS):
            yield record.uid
        for owner in record.owners:
            yield owner
            if owner in self._store.by_uid:  # of a ReplicaSet: a Deployment waits for its last Pod
                yield from self._store.by_uid[owner][1].owners
        if plural == "pods" and b'"resourceClaims"' in record.raw:
            claims = self._objects.resource("resourceclaims").collection
            found = (claims.get(record.namespace, n) for n in claim_names(record.obj))
            yield from (claim.uid for claim in found if claim)
            yield from self._store.dependents.get(record.uid, ())

    def _look(self, uid: str) -> None:
        collection, record = self._store.by_uid.get(uid, (None, None))
        plural = self._plurals.get(collection) if collection else None
        if record is None or plural not in _SYNCS:
            return
        try:
            _SYNCS[plural](self._objects, record.obj)
        except APIError as error:  # a namespace that is being deleted, or an invalid template
            log.info("refused", plural=plural, name=record.name, error=str(error))
