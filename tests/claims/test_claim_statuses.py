"""What is wrong with a claim is said by the claim, and once by an Event of each of its Pods."""

import asyncio
from typing import Any

from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.claim_statuses import ClaimStatuses
from partita.scheduling.demand import Demand
from partita.times import Times
from support.builders import START, a_state, partition_body
from support.claims import claim_body, claim_request, claiming_pod_body
from support.fake_kube import DOWN, FakeKube, Notes
from support.polling import until


async def test_a_reason_is_written_though_late_and_told_to_pods_that_come_after_it() -> None:
    every = [{"cel": {"expression": "true"}}]
    claim = claim_body("bad", pod="", requests=[claim_request(selectors=every)])
    kube, notes, state = FakeKube(claim), Notes(), a_state(partition_body(), claim)
    claims = ClaimReconciler(state, Demand(state))
    api: Any = kube
    events: Any = notes
    times = Times(retry_after=0.01)
    statuses = ClaimStatuses(api, state, claims, events, now=lambda: START, times=times)
    kube.errors = [DOWN]
    work = asyncio.create_task(statuses.run())
    claims.reconcile("uid-bad", START)
    await until(lambda: "annotations" in kube.objects["bad"]["metadata"])
    said = kube.objects["bad"]["metadata"]["annotations"]["partita.dev/status"]
    assert said.startswith("InvalidSpec: ")
    assert "remove selectors" in said
    for number, name in enumerate(("first", "second"), start=1):
        state.apply_pod(claiming_pod_body(name, claim="bad"))
        claims.reconcile("uid-bad", START)
        await until(lambda number=number: notes.said == [said] * number)
    work.cancel()


async def test_a_flood_of_claims_of_one_namespace_does_not_delay_another() -> None:
    every = [{"cel": {"expression": "true"}}]
    bodies = [
        claim_body(name, namespace=namespace, pod="", requests=[claim_request(selectors=every)])
        for name, namespace in (*((f"many-{n}", "team-a") for n in range(30)), ("one", "team-b"))
    ]
    kube, state = FakeKube(*bodies), a_state(partition_body(), *bodies)
    claims = ClaimReconciler(state, Demand(state))
    api: Any = kube
    events: Any = Notes()
    statuses = ClaimStatuses(api, state, claims, events, now=lambda: START)
    for body in bodies:
        claims.reconcile(body["metadata"]["uid"], START)
    work = asyncio.create_task(statuses.run())
    await until(lambda: len(kube.writes) == len(bodies))
    work.cancel()
    assert [name for _, name, _ in kube.writes].index("one") <= 1
