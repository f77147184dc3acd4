"""Checks a claim against the other claims of its Pod.

All claims of a Pod must be on one node, and containers with two slices would need two sets of
variables. So a Pod has one claim of Partita. Claims of other drivers, such as those of a network
card, may stand beside it.
"""

from partita.informer.claim_view import ClaimView
from partita.informer.state import State
from partita.informer.workload_pod import WorkloadPod
from partita.reconcile.reasons import Reason, Why

__all__ = ["why_not_alone"]


def why_not_alone(claim: ClaimView, pod: WorkloadPod, state: State) -> Why | None:
    """Return why a claim of a Pod with several claims gets no GPU yet; None if nothing is wrong."""
    if len(pod.claims) == 1:
        return None
    if any(not one.claim for one in pod.claims):
        templates = ", ".join(one.template for one in pod.claims if not one.claim)
        said = (
            f"not all claims of its Pod exist yet (ResourceClaimTemplates {templates}): see the "
            "Events of the Pod"
        )
        return Why(Reason.SCHEDULING, said)
    named = (state.claim_named(claim.namespace, one.claim) for one in pod.claims)
    ours = [one.name for one in named if one is not None]
    if len(ours) <= 1:
        return None
    said = (
        f"its Pod has {len(ours)} claims of Partita ({', '.join(ours)}), and a Pod gets one slice: "
        "write one claim, or one limit partita.dev/gpu-memory, and name the claim in all "
        "containers that need it"
    )
    return Why(Reason.INVALID_SPEC, said)
