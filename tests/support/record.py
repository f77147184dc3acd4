"""All versions of objects, in order, and what must never have been among them. No I/O.

Whatever happened on the way, no version of any GPUServer may have been allocated above what its GPU
has, no attempt may have been started twice, and nothing may be left.

The resource versions of one API server are ordered over all kinds, so "before" and "while" can
be told across kinds too.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from pydantic import ValidationError

from partita.jobs.attempts import MAX_ATTEMPTS_KEPT
from partita.models import GPUPartition, GPUServer
from partita.pods.own_claims import is_own_claim
from partita.scheduling.ledger import overcommitted
from support.claim_record import claims_allocated_twice, spans_of_pod, workloads_without_allocation
from support.versions import FINISHED, Body, Version, has_ended, life_of

__all__ = ["Body", "Record", "Version"]

_UID = "partita.dev/job-uid"
_COMPONENT = "partita.dev/component"


class Record:
    """What was seen of each object, by kind and UID.

    Attributes
    ----------
    by_hand
        Versions that the test itself wrote into the ledger, as an administrator might: who loses
        his allocation so runs without one until the operator has ended him.
    forged
        UIDs of Pods that the test itself made in the operator's place.
    """

    def __init__(self) -> None:
        self.by_hand: set[int] = set()
        self.forged: set[str] = set()
        self._versions: defaultdict[str, dict[str, list[Version]]] = defaultdict(dict)
        self._latest: defaultdict[str, dict[tuple[str, str], Body]] = defaultdict(dict)

    def take(self, plural: str, version: Version) -> None:
        """Take the next version of an object."""
        meta = version.body["metadata"]
        self._versions[plural].setdefault(meta["uid"], []).append(version)
        key = meta.get("namespace", ""), meta["name"]
        if version.kind == "DELETED":
            self._latest[plural].pop(key, None)
        else:
            self._latest[plural][key] = version.body

    def forget_gone(self) -> None:
        """Forget what is no more, and of all else what was before its last version."""
        for objects in self._versions.values():
            for uid, versions in list(objects.items()):
                if versions[-1].kind == "DELETED":
                    del objects[uid]
                else:
                    del versions[:-1]

    # What tests ask.

    @property
    def plurals(self) -> list[str]:
        """Kinds of which objects were seen."""
        return list(self._versions)

    def lives(self, plural: str) -> list[list[Version]]:
        """Return all versions of each object that ever was."""
        return list(self._versions[plural].values())

    def get(self, plural: str, name: str, namespace: str = "") -> Body | None:
        """Return an object as it is now, None if it is not there."""
        return self._latest[plural].get((namespace, name))

    def latest(self, plural: str) -> dict[str, Version]:
        """Return the last version of each object, which may be its deletion, by UID."""
        return {uid: versions[-1] for uid, versions in self._versions[plural].items()}

    def last(self, plural: str, uid: str) -> Version | None:
        """Return the last version of an object, which may be its deletion; None before the first."""
        versions = self._versions[plural].get(uid)
        return versions[-1] if versions else None

    def all(self, plural: str, namespace: str | None = None) -> list[Body]:
        """Return the objects that are there now."""
        return [
            body for (where, _), body in self._latest[plural].items() if namespace in {None, where}
        ]

    def versions(self, plural: str, name: str, namespace: str = "") -> list[Body]:
        """Return all versions of the objects of this name, in order."""
        return [
            version.body
            for versions in self._versions[plural].values()
            for version in versions
            if version.body["metadata"]["name"] == name
            and version.body["metadata"].get("namespace", "") == namespace
        ]

    def job_pods(self) -> list[Body]:
        """Return the job Pods that ever had no gate, as they were then and in that order."""
        started = sorted((versions[0] for versions in self._job_pods()), key=lambda v: v.number)
        return [version.body for version in started]

    def job_pods_now(self) -> list[Body]:
        """Return the job Pods that are there now."""
        return [
            versions[-1].body for versions in self._made_pods() if versions[-1].kind != "DELETED"
        ]

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of all events about objects of this name."""
        return [
            (body["reason"], body.get("message", ""))
            for body in self.all("events")
            if body["involvedObject"]["name"] == name
        ]

    # The verdict.

    def problems(self) -> list[str]:
        """Name everything in the whole record that must never have been."""
        return [
            *self._allocated_above_capacity(),
            *self._started_twice(),
            *self._ran_without_allocation(),
            *claims_allocated_twice(self.lives("gpuservers"), self.lives("resourceclaims")),
            *workloads_without_allocation(
                [life for life in self.lives("pods") if not _is_job(life[0].body)],
                self.lives("resourceclaims"),
                self.lives("gpuservers"),
                by_hand=self.by_hand,
            ),
            *self._attempts_unlike_pods(),
            *self._statuses_that_went_back(),
        ]

    def left_over(self, *, workloads: bool = False) -> list[str]:
        """Name allocations, living Pods and claims of jobs that are there now.

        Parameters
        ----------
        workloads
            Whether Pods with claims may live, with their allocations.
        """
        users = {pod["metadata"]["uid"] for pod in self.all("pods") if workloads}
        allocated = [
            f"{body['metadata']['name']} has {entry['name']} allocated"
            for body in self.all("gpuservers")
            for entry in body.get("status", {}).get("allocations", {}).values()
            if "job" in entry or entry["podUID"] not in users
        ]
        living = [
            f"Pod {body['metadata']['name']} is {body['status'].get('phase')}"
            for body in self.job_pods_now()
            if not has_ended(body)
        ]
        claims = [
            f"ResourceClaim {body['metadata']['name']} is there"
            for body in self.all("resourceclaims")
            if is_own_claim(body["metadata"]["name"])
            and (body["metadata"].get("labels") or {}).get(_COMPONENT) == "job"
        ]
        return allocated + living + claims

    def attempts(self, job_uid: str) -> list[int]:
        """Return the attempts for which a job's Pods ever had no gate."""
        metas = [pod["metadata"] for pod in self.job_pods()]
        return sorted(
            int(meta["labels"]["partita.dev/attempt"])
            for meta in metas
            if meta["annotations"][_UID] == job_uid
        )

    def _job_pods(self) -> Iterator[list[Version]]:
        """Yield the job Pods that ever had no gate, and so could start, from then on."""
        for versions in self._made_pods():
            if started := list(itertools.dropwhile(lambda v: _is_gated(v.body), versions)):
                yield started

    def _made_pods(self) -> Iterator[list[Version]]:
        for versions in self._versions["pods"].values():
            # As it was made: labels and owners can be changed later, by whoever owns the namespace.
            made = versions[0].body
            if made["metadata"]["uid"] not in self.forged and _is_job(made):
                yield versions

    def _allocated_above_capacity(self) -> Iterator[str]:
        partitions: dict[str, list[GPUPartition]] = {}
        for versions in self._versions["gpupartitions"].values():
            for version in versions:
                with suppress(ValidationError):  # what was read last is in force
                    found = GPUPartition.parse(version.body)
                    partitions.setdefault(found.metadata.name, []).append(found)
        for versions in self._versions["gpuservers"].values():
            memory = 0  # as it was told last; what forgets it has no less
            for version in versions:
                server = GPUServer.parse(version.body)
                memory = server.status.memory or memory
                if not server.status.allocations:
                    continue
                wishes = partitions[server.spec.partition]
                if overcommitted(
                    server.status.allocations,
                    memory=max(wish.spec.allocatable(memory) for wish in wishes),
                    max_jobs=server.spec.max_jobs,
                    max_clients=48,
                ):
                    yield f"{server.metadata.name} is overcommitted at version {version.number}"

    def _started_twice(self) -> Iterator[str]:
        lives: dict[str, list[tuple[int, int, str]]] = {}
        made: set[tuple[str, int]] = set()
        for versions in sorted(self._job_pods(), key=lambda versions: versions[0].number):
            meta = versions[0].body["metadata"]
            uid, attempt = meta["annotations"][_UID], int(meta["labels"]["partita.dev/attempt"])
            if (uid, attempt) in made:
                yield f"attempt {attempt} of job {uid} was started twice: {meta['name']}"
            if not self._left_no_trace(uid, meta["uid"]):
                made.add((uid, attempt))
            begin, end = life_of(versions)
            lives.setdefault(uid, []).append((begin, end, meta["name"]))
        for spans in lives.values():
            spans.sort()
            for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
                if begin < end:
                    yield f"{other} was started while {one} lived"

    def _left_no_trace(self, job: str, pod: str) -> bool:
        """Return whether nobody can know of a Pod that is gone: it is in no status of its job, and
        somebody took its allocation by hand.
        """
        servers = self._versions["gpuservers"].values()
        taken = any(
            last in self.by_hand for server in servers for _, last in spans_of_pod(server, pod)
        )
        versions = self._versions["sharedgpujobs"].get(job, ())
        named = {a.get("podUID") for version in versions for a in _attempts(version.body)}
        return taken and pod not in named

    def _ran_without_allocation(self) -> Iterator[str]:
        for versions in self._job_pods():
            meta = versions[0].body["metadata"]
            begin, end = life_of(versions)
            servers = self._versions["gpuservers"].values()
            spans = [span for server in servers for span in spans_of_pod(server, meta["uid"])]
            covered = any(first < begin and end <= last for first, last in spans)
            if not covered and not any(last in self.by_hand for _, last in spans):
                yield f"{meta['name']} lived from {begin} to {end}, but was allocated {spans}"

    def _attempts_unlike_pods(self) -> Iterator[str]:
        started, pods = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
        for found, lives in ((started, self._job_pods()), (pods, self._made_pods())):
            for life in lives:
                meta = life[0].body["metadata"]
                number = int(meta["labels"]["partita.dev/attempt"])
                found[meta["annotations"][_UID]].add(number)
        for uid, versions in self._versions["sharedgpujobs"].items():
            body = versions[-1].body
            if body.get("status", {}).get("phase") not in FINISHED:
                continue
            # Whoever forges an attempt of his own job is believed: it ends that job alone.
            said = {a["number"] for a in _attempts(body) if not self._is_forged(body, a)}
            trimmed = said < started[uid] and len(said) >= MAX_ATTEMPTS_KEPT
            if not started[uid] <= said <= pods[uid] and not trimmed:
                name, there = body["metadata"]["name"], sorted(pods[uid])
                yield f"{name} says attempts {sorted(said)}, but there were Pods {there}"

    def _is_forged(self, job: Body, attempt: Body) -> bool:
        named = self.versions("pods", attempt.get("pod", ""), job["metadata"]["namespace"])
        uids = {pod["metadata"]["uid"] for pod in named}
        return bool(uids) and uids <= self.forged

    def _statuses_that_went_back(self) -> Iterator[str]:
        for versions in self._versions["sharedgpujobs"].values():
            name = versions[0].body["metadata"]["name"]
            outcomes: dict[int, str] = {}
            finished = retry = ""
            for version in versions:
                status = version.body.get("status", {})
                phase = status.get("phase", "")
                asked, retry = status.get("retry", "") != retry, status.get("retry", "")
                if finished and phase != finished and not (asked and finished == "Failed"):
                    yield f"{name} was {finished} and became {phase} at {version.number}"
                finished = phase if phase in FINISHED else ""
                for attempt in _attempts(version.body):
                    number, outcome = attempt["number"], attempt.get("outcome", "")
                    old = outcomes.get(number, "")
                    if old and outcome != old:
                        yield f"{name} attempt {number} was {old} and became {outcome}"
                    outcomes[number] = outcome


def _attempts(job: Body) -> list[Body]:
    """Return the attempts that a job's status tells of."""
    attempts: list[Body] = job.get("status", {}).get("attempts", [])
    return attempts


def _is_gated(pod: Body) -> bool:
    return bool((pod.get("spec") or {}).get("schedulingGates"))


def _is_job(pod: Body) -> bool:
    """Tell the operator's own job Pods: whoever borrows the label owns no job."""
    meta = pod["metadata"]
    owners = [owner["kind"] for owner in meta.get("ownerReferences") or []]
    return (meta.get("labels") or {}).get(_COMPONENT) == "job" and "SharedGPUJob" in owners
