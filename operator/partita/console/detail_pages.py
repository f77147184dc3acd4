"""Answers requests for the page of one job or workload, and for what each policy would do."""

import asyncio
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web

from partita.console.access import Sees, ViewerAccess
from partita.console.answers import json_answer, refusals
from partita.console.ask_policies import PolicyAnswer, ask_policies, put_back
from partita.console.feed import Feed
from partita.console.jobs import event_row, job_in_full
from partita.console.page_state import namespaces_of
from partita.console.use_history import UseHistory
from partita.console.workload_pages import answer_rows, named_workload, workload_in_full
from partita.informer.listing import Lists, read_lists, state_of
from partita.informer.state import State
from partita.kube.client import EVENTS, Kube
from partita.kube.errors import ForbiddenError, KubernetesError

__all__ = ["DetailPages"]

EVENTS_SHOWN = 100
"""Number of Events of one job or Pod that are sent; the latest are chosen."""
ANSWERS_KEPT = 10.0
"""Seconds for which the policies' answers about one job are kept: all its viewers get the same."""


class _Found(NamedTuple):
    """The job or workload of a request."""

    uid: str
    events_of: str
    """UID of the object that its Events are about."""
    namespace: str
    data: dict[str, Any]
    waits: bool
    sees: Sees


class DetailPages:
    """Answers for viewers who may see the names in the namespace of the job or workload.

    Parameters
    ----------
    kube
        A client that may list what the operator's decisions depend on, to ask the policies.
    """

    def __init__(self, kube: Kube, feed: Feed, use: UseHistory, access: ViewerAccess) -> None:
        self._kube = kube
        self._feed = feed
        self._use = use
        self._access = access
        self._asking = asyncio.Lock()
        self._answers: dict[str, tuple[float, list[PolicyAnswer]]] = {}

    async def page(self, request: web.Request) -> web.Response:
        """Respond with all data of one job or workload."""
        with refusals():
            found = await self._find(request)
            events, problem = await self._events(request, found)
        use = self._use.of(found.uid)
        return json_answer({**found.data, "use": use, "events": events, "eventsProblem": problem})

    async def policies(self, request: web.Request) -> web.Response:
        """Respond with what each policy would do with a job or workload now."""
        with refusals():
            found = await self._find(request)
            try:
                answers = await self._ask(found)
            except ForbiddenError as error:
                text = f"the console may not read what the policies need: {error.message}"
                raise web.HTTPForbidden(text=text) from None
        return json_answer({"waits": found.waits, "answers": answer_rows(answers, found.sees)})

    async def _find(self, request: web.Request) -> _Found:
        """Return the job or workload of a request.

        The answer must not reveal whether one exists that the viewer may not see.
        """
        query, state = request.query, self._feed.state
        namespace, name = query.get("namespace", ""), query.get("name", "")
        sees = await self._access.sees(
            request.headers.get("Authorization", ""),
            namespaces_of(self._feed.page) | {namespace},
        ) or (lambda _: True)
        found = None
        if sees(namespace):
            find = self._workload if query.get("kind") == "workload" else self._job
            found = find(state, namespace, name, sees)
        if found is None:
            raise web.HTTPNotFound(text="it does not exist, or you may not see it")
        return found

    @staticmethod
    def _job(state: State, namespace: str, name: str, sees: Sees) -> _Found | None:
        key = f"{namespace}/{name}"
        job = next((job for job in state.jobs.values() if job.key == key), None)
        if job is None:
            return None
        uid = job.metadata.uid
        waits = not state.allocated(uid) and not job.spec.suspend
        return _Found(uid, uid, namespace, job_in_full(state, job), waits, sees)

    @staticmethod
    def _workload(state: State, namespace: str, name: str, sees: Sees) -> _Found | None:
        view = named_workload(state, namespace, name)
        if view is None:
            return None
        pods = (pod.uid for pod in state.pods_of(view.uid) if pod.name == view.pod)
        about = next(pods, view.uid)
        data = workload_in_full(view, state, datetime.now(UTC), sees)
        return _Found(view.uid, about, namespace, data, view.phase == "Queued", sees)

    async def _events(self, request: web.Request, found: _Found) -> tuple[list[Any], str]:
        """Return the Events of a job or Pod, and why they cannot be shown."""
        namespace, authorization = found.namespace, request.headers.get("Authorization", "")
        try:
            if not await self._access.may_list(authorization, EVENTS, namespace):
                return [], f"You may not list Events in namespace {namespace}."
            uid = f"involvedObject.uid={found.events_of}"
            listed, _ = await self._kube.list(EVENTS, namespace=namespace, field_selector=uid)
        except KubernetesError as error:
            return [], f"The console cannot read Events: {error.message}."
        # Times have a resolution of one second. Events are listed by name, and the names of
        # Partita's Events are in the order in which the Events were written. The sort is stable.
        rows = sorted(map(event_row, listed), key=lambda row: str(row["time"]))
        return rows[::-1][:EVENTS_SHOWN], ""

    async def _ask(self, found: _Found) -> list[PolicyAnswer]:
        """Compute the policies' answers, one request at a time, in a thread.

        A cycle with thousands of jobs takes seconds, in which the page must stay up to date.
        """
        clock = asyncio.get_running_loop().time
        async with self._asking:
            for uid in [u for u, (at, _) in self._answers.items() if clock() - at >= ANSWERS_KEPT]:
                del self._answers[uid]
            if found.uid not in self._answers:
                lists = await read_lists(self._kube)
                answers = await asyncio.to_thread(_asked, lists, found)
                self._answers[found.uid] = clock(), answers
            return self._answers[found.uid][1]


def _asked(lists: Lists, found: _Found) -> list[PolicyAnswer]:
    state = state_of(lists if found.waits else put_back(lists, found.uid))
    if found.uid not in state.jobs and found.uid not in state.claims:
        return []
    return asyncio.run(ask_policies(state, found.uid, datetime.now(UTC)))
