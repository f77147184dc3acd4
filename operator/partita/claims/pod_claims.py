"""Checks a claim against the other claims of its Pod.

All claims of a Pod must be on one node, and containers with two slices would need two sets of
variables. So a Pod has one claim of Partita. Claims of other drivers, such as those of a network
card, may stand beside it.
"""

from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.workload_pod import WorkloadPod

__all__ = ["second_claim", "second_claim_of_job", "why_not_alone"]


def second_claim(claim: ClaimView) -> str:
    """Return what to write instead of a claim in the template of a SharedGPUJob."""
    return (
        f"claim {claim.name} is one of class {claim.device_class}, and a SharedGPUJob gets a claim "
        "of its own: remove it from spec.template.spec.resourceClaims, and write the amounts in "
        "spec.gpuMemory and spec.threadPercent"
    )


def second_claim_of_job(uid: str, state: State) -> str:
    """Return what is wrong if a Pod of a job has a claim made from a template; empty if none has.

    Only a claim of Partita is meant. Its template may have any name, so nothing refuses the job.
    """
    pods = (pod for pod in state.pods_of(uid) if pod.alive and not pod.node)
    claims = (claim for pod in pods for claim in state.claims_made_for(pod))
    return next((second_claim(claim) for claim in claims), "")


def why_not_alone(claim: ClaimView, pod: WorkloadPod, state: State) -> WaitingReason | None:
    """Return why a claim of a Pod with several claims gets no GPU yet; None if nothing is wrong."""
    if len(pod.claims) == 1:
        return None
    if any(not one.claim for one in pod.claims):
        templates = ", ".join(one.template for one in pod.claims if not one.claim)
        said = (
            f"not all claims of its Pod exist yet (ResourceClaimTemplates {templates}): see the "
            "Events of the Pod"
        )
        return WaitingReason(Reason.SCHEDULING, said)
    named = (state.claim_named(claim.namespace, one.claim) for one in pod.claims)
    ours = [one.name for one in named if one is not None]
    if len(ours) <= 1:
        return None
    said = (
        f"its Pod has {len(ours)} claims of Partita ({', '.join(ours)}), and a Pod gets one slice: "
        "write one claim, or one limit partita.dev/gpu-memory, and name the claim in all "
        "containers that need it"
    )
    return WaitingReason(Reason.INVALID_SPEC, said)
