"""The claim and the Pod of an attempt are created by name, and hold nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from partita.constants import ALLOCATION_GATE
from partita.jobs import attempt_pods
from partita.jobs.attempt_pods import AttemptPods, NotCreated
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    WebhookError,
)
from partita.kube.kinds import Kind
from partita.models import SharingMode
from partita.pods.allocation import JobAllocation
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.state import State
from partita.store.views import PodView
from support.builders import DELETING, GIB, TEMPLATE, a_job, a_pod, a_state, job_body, pod_body
from support.claims import claim_allocation_body, claim_body, claim_request
from support.fake_kube import DOWN, FakeKube, Notes
from support.polling import TIMEOUT

WANTED = JobAllocation(
    uuids=("GPU-8a56a4bc-e184-4c1f-9b4e-5cb3a0d4c5f1",),
    memory=8 * GIB,
    total_memory=40 * GIB,
    mode=SharingMode.MPS,
)
OTHER_GPU = WANTED.uuids[0][:-1] + "2"
POD, CLAIM = "train-1", "train-1.partita.dev"


class World:
    """A job, and what the API server and the operator know of its attempt."""

    def __init__(self, *bodies: dict[str, Any], **spec: Any) -> None:
        self.kube, self.notes = FakeKube(*bodies), Notes()
        self.job = a_job(**spec)
        self.restart()

    def restart(self) -> None:
        """Have another process go on, whose informer has not reported a Pod or a claim."""
        self.state: State = a_state(job_body())
        api: Any = self.kube
        events: Any = self.notes
        self.pods = AttemptPods(api, self.state, events)

    async def create(self, wanted: JobAllocation = WANTED) -> PodView | NotCreated | WaitingReason:
        return await self.pods.create(self.job, wanted, 100)

    async def created(self, wanted: JobAllocation = WANTED) -> PodView:
        pod = await self.create(wanted)
        assert isinstance(pod, PodView)
        return pod

    def writes(self) -> list[tuple[str, str]]:
        found = [(verb, name) for verb, name, _ in self.kube.writes]
        self.kube.writes.clear()
        return found

    def gone(self, name: str) -> None:
        """Have an object be deleted, and the informer report it."""
        body = self.kube.objects.pop(name)
        (self.state.apply_pod if name == POD else self.state.apply_claim)(body, deleted=True)

    def changed(self, name: str, patch: dict[str, Any]) -> None:
        """Have somebody change an object, and the informer report it."""
        body = self.kube.bump(name, patch)
        (self.state.apply_pod if name == POD else self.state.apply_claim)(body)


class TestCreation:
    async def test_both_are_created_once_and_hold_nothing(self):
        world = World()
        for _ in range(2):
            pod = await world.created()
            assert (pod.uid, pod.gated) == ("pod-train-1", True)
        assert sorted(world.writes()) == [("create", POD), ("create", CLAIM)]
        claim = world.kube.objects[CLAIM]
        assert "status" not in claim
        assert claim["metadata"]["labels"]["partita.dev/attempt"] == "1"
        (request,) = claim["spec"]["devices"]["requests"]
        assert request["exactly"]["capacity"]["requests"] == {"memory": "8Gi", "threads": "100"}

    async def test_several_gpus_are_devices_of_one_claim(self):
        world = World(gpus=2)
        uuids = (WANTED.uuids[0], OTHER_GPU)
        await world.created(replace(WANTED, uuids=uuids, mode=SharingMode.EXCLUSIVE))
        (request,) = world.kube.objects[CLAIM]["spec"]["devices"]["requests"]
        assert request["exactly"]["count"] == 2

    async def test_other_gates_of_the_template_stay(self):
        others = [{"name": "example.org/quota"}]
        world = World(template={"spec": {**TEMPLATE["spec"], "schedulingGates": others}})
        await world.created()
        gates = world.kube.objects[POD]["spec"]["schedulingGates"]
        assert gates == [*others, {"name": ALLOCATION_GATE}]

    async def test_what_an_earlier_process_created_is_used(self):
        world = World()
        first = await world.created()
        world.restart()
        assert (await world.created()).uid == first.uid
        assert world.kube.created == [POD]
        (claim,) = world.state.claims_of_user("uid-train")
        assert claim.allocation is None

    @pytest.mark.parametrize("name", [POD, CLAIM])
    async def test_what_got_no_answer_is_created_again(self, name: str):
        world = World()
        world.kube.errors = [None, DOWN] if name == POD else [DOWN, None]
        assert await world.create() is NotCreated.RETRY_LATER
        await world.created()
        assert {POD, CLAIM} <= world.kube.objects.keys()

    @pytest.mark.parametrize("name", [POD, CLAIM])
    async def test_what_is_deleted_while_it_is_read_is_created_again(self, name: str):
        world, there = World(), AlreadyExistsError("create", 409, "there")
        world.kube.errors = [None, there] if name == POD else [there, None]
        assert await world.create() is NotCreated.RETRY_LATER
        await world.created()

    @pytest.mark.parametrize("name", [POD, CLAIM])
    @pytest.mark.parametrize("told", [True, False])
    async def test_what_is_being_deleted_is_waited_for(self, name: str, *, told: bool):
        world = World()
        await world.created()
        world.changed(name, {"metadata": DELETING})
        if not told:
            world.restart()
        assert await world.create() is NotCreated.RETRY_LATER
        assert [write for write in world.writes() if write[0] == "delete"] == []
        world.gone(name)
        await world.created()

    @pytest.mark.parametrize("change", [{"memory": 4 * GIB}, {"device_injection": "RuntimeClass"}])
    async def test_a_pod_for_another_allocation_is_replaced(self, change: dict[str, Any]):
        world = World()
        await world.created()
        world.writes()
        other = replace(WANTED, **change)
        assert await world.create(other) is NotCreated.RETRY_LATER
        assert world.writes() == [("delete", POD)]
        world.gone(POD)
        assert (await world.created(other)).template_hash != a_pod().template_hash

    async def test_a_claim_whose_allocation_the_ledger_has_lost_is_replaced(self):
        world = World()
        await world.created()
        world.writes()
        world.changed(CLAIM, {"status": {"allocation": claim_allocation_body()}})
        assert await world.create() is NotCreated.RETRY_LATER
        assert world.writes() == [("delete", CLAIM)]

    async def test_a_pod_for_another_gpu_of_its_kind_is_used(self):
        world = World()
        first = await world.created()
        elsewhere = replace(WANTED, uuids=(OTHER_GPU,))
        assert await world.created(elsewhere) == first

    async def test_a_pod_that_ended_before_it_got_a_gpu_is_replaced(self):
        world = World()
        await world.created()
        world.kube.bump(POD, {"status": {"phase": "Failed"}})
        world.restart()
        assert await world.create() is NotCreated.RETRY_LATER
        assert world.writes()[-1] == ("delete", POD)

    @pytest.mark.parametrize(
        "body",
        [
            pod_body(metadata={"ownerReferences": []}),
            claim_body(CLAIM, pod=""),
            claim_body(CLAIM, pod="", requests=[claim_request("other.example.org")]),
        ],
        ids=["Pod", "claim", "claim of other devices"],
    )
    async def test_a_name_that_another_owner_has_is_said(self, body: dict[str, Any]):
        world = World(body)
        assert await world.create() is NotCreated.NAME_TAKEN
        assert world.state.pods.keys() <= {"pod-train-1"}

    @pytest.mark.parametrize("told", [True, False])
    async def test_the_claim_of_a_deleted_job_is_not_taken_for_that_of_a_job_of_its_name(
        self, *, told: bool
    ):
        world = World()
        await world.created()
        world.gone(POD)
        world.changed(CLAIM, {"metadata": {"ownerReferences": None}})
        if not told:
            world.restart()
        world.job = a_job(metadata={"uid": "uid-later"})
        assert await world.create() is NotCreated.NAME_TAKEN

    async def test_a_variable_that_we_set_is_told_once(self):
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        containers = [{"name": "main", "image": "i", "env": env}]
        world = World(template={"spec": {"containers": containers}})
        for _ in range(2):
            await world.created()
        assert world.notes.said == [
            "VariableOverridden: the template sets NVIDIA_VISIBLE_DEVICES; Partita's value is used"
        ]


class SlowIn(FakeKube):
    """Answers about the objects of one namespace when it may."""

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["namespace"] == "slow":
            await asyncio.Event().wait()
        return await super().create(kind, body)


async def test_a_namespace_with_a_slow_webhook_does_not_keep_others_waiting():
    world = World()
    world.kube = SlowIn()
    world.restart()
    stuck = [a_job(f"stuck-{n}", namespace="slow") for n in range(100)]
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(world.pods.create(job, WANTED, 100)) for job in stuck]
        await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT):
            await world.created()
        for task in waiting:
            task.cancel()


HELD = 'admission webhook "a.example.org" denied the request: no'
HOOK = 'failed calling webhook "pods.example.org": context deadline exceeded'
POLICY = "ValidatingAdmissionPolicy 'no-friday' with binding 'all' denied request: not today"
DENIED = f'pods "train-1" is forbidden: {POLICY}'
INVALID = 'Pod "train-1" is invalid: spec.containers[0].image: Required value'
REFUSED = [
    (
        InvalidError("create", 422, INVALID),
        Reason.INVALID_SPEC,
        f"the API server refuses its Pod: {INVALID}; correct spec.template",
    ),
    (
        ForbiddenError("create", 403, "exceeded quota"),
        Reason.POD_FORBIDDEN,
        "the cluster does not admit its Pod: exceeded quota",
    ),
    (
        NotFoundError("create", 404, "namespaces not found"),
        Reason.POD_FORBIDDEN,
        "the cluster does not admit its Pod: namespaces not found",
    ),
    # A policy without `reason` denies with 422, as if the Pod were invalid.
    (
        InvalidError("create", 422, DENIED),
        Reason.POD_FORBIDDEN,
        f"ValidatingAdmissionPolicy no-friday does not admit its Pod: {DENIED}",
    ),
    (
        InvalidError("create", 400, HELD),
        Reason.POD_FORBIDDEN,
        f"admission webhook a.example.org does not admit its Pod: {HELD}",
    ),
    (
        WebhookError("create", 500, HOOK),
        Reason.WEBHOOK_FAILED,
        f"its Pod cannot be created: {HOOK}",
    ),
]


class TestRefusals:
    @pytest.mark.parametrize(("error", "reason", "says"), REFUSED)
    async def test_a_pod_that_the_api_server_does_not_take_says_why(
        self, error: Any, reason: Reason, says: str
    ):
        world = World()
        world.kube.errors = [None, error]
        assert await world.create() == WaitingReason(reason, says)

    async def test_so_does_a_claim(self):
        world = World()
        world.kube.errors = [ForbiddenError("create", 403, "exceeded quota"), None]
        said = "the cluster does not admit its ResourceClaim: exceeded quota"
        assert await world.create() == WaitingReason(Reason.POD_FORBIDDEN, said)


class TestDeletion:
    async def test_only_this_pod_or_claim_is_deleted_and_a_failure_is_told(self):
        world = World()
        assert await world.pods.delete(a_pod(), grace=0)
        assert world.kube.writes == [("delete", POD, ("pod-train-1", 0))]
        for error in (NotFoundError("delete", 404, "no"), ConflictError("delete", 409, "other")):
            world.kube.errors = [error]
            assert await world.pods.delete(a_pod())
        await world.created()
        for one in (a_pod(), *world.state.claims_of_user("uid-train")):
            world.kube.errors = [DOWN]
            assert not await world.pods.delete(one)

    async def test_few_claims_of_a_namespace_are_deleted_at_the_same_time(self):
        world, few = World(), attempt_pods._CLAIMS[1]
        await world.created()
        (known,) = world.state.claims_of_user("uid-train")
        world.writes()
        world.kube.answers.clear()
        async with asyncio.TaskGroup() as group:
            claims = [known] * 2 * few + [replace(known, namespace="other")]
            tasks = [group.create_task(world.pods.delete(claim)) for claim in claims]
            for _ in tasks:
                await asyncio.sleep(0)
            assert len(world.kube.writes) == few + 1
            world.kube.answers.set()
        assert all(task.result() for task in tasks)
        assert len(world.kube.writes) == 2 * few + 1
