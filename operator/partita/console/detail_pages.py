"""Answers requests for the page of one job or workload, and for what each policy would do."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from partita.accounting.daily_usage import DailyUsage
from partita.accounting.usage_recorder import usage_for_order
from partita.console.access import Sees, ViewerAccess
from partita.console.answers import json_answer, refusals
from partita.console.ask_policies import ask_policies, put_back
from partita.console.details import answer_rows, detail_of, event_row, named
from partita.console.explanation import Explanation
from partita.console.feed import Feed
from partita.console.history import History
from partita.console.job_changes import possible_changes
from partita.console.page_state import namespaces_of
from partita.console.policy_answer import PolicyAnswer
from partita.kube.client import EVENTS, JOBS, Kube
from partita.kube.errors import ForbiddenError, KubernetesError
from partita.store.listing import Lists, read_lists, state_of

__all__ = ["DetailPages"]

EVENTS_SHOWN = 100
"""Number of Events of one job or Pod that are sent; the latest are chosen."""
ANSWERS_KEPT = 10.0
"""Seconds for which the policies' answers about one job are kept: all its viewers get the same."""


class DetailPages:
    """Answers for viewers who may see the names in the namespace of the job or workload.

    Parameters
    ----------
    kube
        A client that may list what the operator's decisions depend on, to ask the policies.
    """

    def __init__(self, kube: Kube, feed: Feed, history: History, access: ViewerAccess) -> None:
        self._kube = kube
        self._feed = feed
        self._slices = history.slices
        self._access = access
        self._asking = asyncio.Lock()
        self._answers: dict[str, tuple[float, list[PolicyAnswer]]] = {}

    async def page(self, request: web.Request) -> web.Response:
        """Respond with all data of one job or workload."""
        with refusals():
            found, sees = await self.find(request)
            events, problem = await self._events(request, found)
            changes = await self._changes(request, found)
        data = detail_of(found, self._feed.state, sees)
        use = self._slices.of(self._feed.state.holder(found.workload.uid))
        more = {"use": use, "events": events, "eventsProblem": problem, **changes}
        return json_answer({**data, **more})

    async def policies(self, request: web.Request) -> web.Response:
        """Respond with what each policy would do with a job or workload now."""
        with refusals():
            found, sees = await self.find(request)
            try:
                answers = await self._ask(found)
            except ForbiddenError as error:
                text = f"the console may not read what the policies need: {error.message}"
                raise web.HTTPForbidden(text=text) from None
        return json_answer({"waits": found.waits, "answers": answer_rows(answers, sees)})

    async def find(self, request: web.Request) -> tuple[Explanation, Sees]:
        """Return the job or workload of a request, and what its viewer may see.

        The answer must not reveal whether one exists that the viewer may not see.

        Raises
        ------
        SignInError, NotAllowedError, KubernetesError
            The viewer may see nothing, or the API server does not answer.
        """
        state, query = self._feed.state, request.query
        namespace, name = query.get("namespace", ""), query.get("name", "")
        sees = await self._access.sees(
            request.headers.get("Authorization", ""),
            namespaces_of(self._feed.page) | {namespace},
        ) or (lambda _: True)
        found = None
        if sees(namespace):
            found = named(state, query.get("kind", ""), namespace, name, datetime.now(UTC))
        if found is None:
            raise web.HTTPNotFound(text="it does not exist, or you may not see it")
        return found, sees

    async def _changes(self, request: web.Request, found: Explanation) -> dict[str, Any]:
        """Return what may be changed about a job, and why the viewer cannot do it here."""
        changes = []
        if (job := found.job) is not None:
            changes = possible_changes(job.status.phase or "", suspended=job.spec.suspend)
        problem, namespace = "", found.workload.namespace
        if changes and not self._access.asks:
            problem = (
                "Nobody signs in to this console, so it changes nothing: use the command below."
            )
        elif changes:
            authorization = request.headers.get("Authorization", "")
            if not await self._access.may(authorization, "patch", JOBS, namespace):
                problem = f"You may not change jobs in namespace {namespace}."
        return {"changes": changes, "changesProblem": problem}

    async def _events(self, request: web.Request, found: Explanation) -> tuple[list[Any], str]:
        """Return the Events of a job or Pod, and why they cannot be shown."""
        view, authorization = found.workload, request.headers.get("Authorization", "")
        namespace = view.namespace
        pods = (pod.uid for pod in self._feed.state.pods_of(view.uid) if pod.name == view.pod)
        about = view.uid if view.is_job else next(pods, view.uid)
        try:
            if not await self._access.may(authorization, "list", EVENTS, namespace):
                return [], f"You may not list Events in namespace {namespace}."
            of = f"involvedObject.uid={about}"
            listed, _ = await self._kube.list(EVENTS, namespace=namespace, field_selector=of)
        except KubernetesError as error:
            return [], f"The console cannot read Events: {error.message}."
        # Times have a resolution of one second. Events are listed by name, and the names of
        # Partita's Events are in the order in which the Events were written. The sort is stable.
        rows = sorted(map(event_row, listed), key=lambda row: str(row["time"]))
        return rows[::-1][:EVENTS_SHOWN], ""

    async def _ask(self, found: Explanation) -> list[PolicyAnswer]:
        """Compute the policies' answers, one request at a time, in a thread.

        A cycle with thousands of jobs takes seconds, in which the page must stay up to date.
        """
        clock, uid = asyncio.get_running_loop().time, found.workload.uid
        async with self._asking:
            for old in [u for u, (at, _) in self._answers.items() if clock() - at >= ANSWERS_KEPT]:
                del self._answers[old]
            if uid not in self._answers:
                lists = await read_lists(self._kube)
                usage = await usage_for_order(self._kube, self._feed.state)
                answers = await asyncio.to_thread(_asked, lists, usage, found)
                self._answers[uid] = clock(), answers
            return self._answers[uid][1]


def _asked(lists: Lists, usage: list[DailyUsage], found: Explanation) -> list[PolicyAnswer]:
    uid, partition = found.workload.uid, found.workload.partition
    state = state_of(lists if found.waits else put_back(lists, uid))
    return asyncio.run(ask_policies(state, uid, partition, datetime.now(UTC), usage))
