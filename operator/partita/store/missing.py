"""Removes objects from the state that were deleted without an event, during a gap in a watch."""

from collections.abc import Collection

from partita.kube.kinds import JOBS, PODS, Kind
from partita.store.comparison import stub_of
from partita.store.state import State
from partita.store.watched_kinds import feeds

__all__ = ["forget_missing"]


def forget_missing(state: State, kind: Kind, uids: Collection[str], version: int) -> int:
    """Remove objects that are missing in a list; return their number.

    Parameters
    ----------
    uids
        UIDs of the objects in the list.
    version
        Resource version of the list. Newer objects are kept.
    """
    feed = feeds(state)[kind]
    finished = state.finished.values() if kind is JOBS else ()
    kept = (*state.unreadable.of(kind.plural), *finished, *feed.objects.values())
    # Of an object that was read before, the version that was read last.
    stubs = {stub["metadata"]["uid"]: stub for stub in map(stub_of, kept)}
    gone = [
        stub
        for stub in stubs.values()
        if stub["metadata"]["uid"] not in uids
        and int(stub["metadata"]["resourceVersion"]) <= version
    ]
    for stub in gone:
        feed.apply(stub, deleted=True)
    return len(gone) + (state.usage.forget_missing(uids, version) if kind is PODS else 0)
