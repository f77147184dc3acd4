"""The claims that the operator creates for jobs, which are in the tenant's namespace."""

from __future__ import annotations

from adversary.actions import action
from adversary.attacker import LONG, Attacker, Body, pod_body
from partita.pods.own_claims import own_claim, own_claim_name
from support.claims import claim_request
from support.job import Job, container

OWN_CLAIMS = "`partita-own-claims` rejects it"
LEDGER = "a Pod has its memory until it is deleted, regardless of its claim"


def _claim(attacker: Attacker, name: str, **meta: object) -> Body:
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    requests = [claim_request(device_class, memory="39Gi")]
    return {"metadata": {"name": name, **meta}, "spec": {"devices": {"requests": requests}}}


def _using(claim: str) -> Body:
    """Return a Pod's spec with this claim."""
    main = container(resources={"claims": [{"name": "gpu"}]})
    return {"containers": [main], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}


async def _claim_of(job: Job) -> str:
    """Return the name of the claim of the first attempt of a job that runs."""
    return own_claim(job.made())


async def _others_fit(attacker: Attacker) -> None:
    """Offer the operator what does not fit if it believes that the first job's memory is free."""
    for number in range(2):
        await attacker.job(f"more-{number}", gpuMemory="14Gi", sim=LONG)


@action(f"{OWN_CLAIMS}; without it, the status of the job says that the name is taken")
async def claims_with_the_names_of_a_future_attempts(attacker: Attacker) -> None:
    """A claim of 39 GiB with the name of the claim of a job's first attempt."""
    path = attacker.resource_path("resourceclaims")
    answer = await attacker.api.post(path, _claim(attacker, own_claim_name("hog-1")))
    if attacker.cluster.real:
        attacker.refused(answer)
    await attacker.job("hog", gpuMemory="4Gi", sim=LONG)


@action(OWN_CLAIMS)
async def pod_with_name_and_claim_of_a_future_attempt(attacker: Attacker) -> None:
    """Pods with the names of a job's first attempts, each with the claim of that attempt."""
    for attempt in (1, 2):
        name = f"hog-{attempt}"
        spec = _using(own_claim_name(name))
        await attacker.forge_pod(pod_body(name, spec=spec))
    await attacker.job("hog", gpuMemory="4Gi", sim=LONG)


@action("the CRD refuses the template, and says what to remove")
async def job_whose_template_names_the_claim_of_another_job(attacker: Attacker) -> None:
    """A job of 1 GiB whose template uses the claim of an own job that runs, or of a victim's."""
    owner = await attacker.runs("owner")
    for index, claim in enumerate(
        (await _claim_of(owner), await _claim_of(attacker.cluster.running[0]))
    ):
        template = {"spec": _using(claim)}
        answer = await attacker.submit(f"taker-{index}", gpuMemory="1Gi", template=template)
        attacker.refused(answer, 422)


@action(f"`partita-metadata` rejects it; {LEDGER}", real=True)
async def own_jobs_claim_without_its_owner(attacker: Attacker) -> None:
    """Taking owner and labels off the claim of a job that runs."""
    job = await attacker.runs("hog")
    path = attacker.resource_path("resourceclaims", await _claim_of(job))
    labels = {"partita.dev/job": None, "partita.dev/attempt": "7"}
    for meta in ({"ownerReferences": None}, {"labels": labels}):
        attacker.refused(await attacker.api.patch(path, {"metadata": meta}))


@action(LEDGER)
async def own_jobs_claim_deleted_by_force(attacker: Attacker) -> None:
    """Deleting the claim of a job that runs, and removing its finalizers, then asking for as much again."""
    job = await attacker.job("hog", gpuMemory="14Gi", sim=LONG)
    await job.runs()
    path = attacker.resource_path("resourceclaims", await _claim_of(job))
    await attacker.api.delete(path)
    await attacker.api.patch(path, {"metadata": {"finalizers": None}})
    await _others_fit(attacker)
    await attacker.runs("next")  # by then the operator knows that the claim is gone
    # The ledger and the Pods are watched separately: either may be seen first.
    cluster = attacker.cluster
    await cluster.history.until(
        lambda: any(job.holds(gpu) for gpu in cluster.gpus) or job.pod() is None
    )
