"""Plans the ResourceClaims of a job's attempts (`partita.pods.own_claims`).

They are created before the Pod of the attempt, by the process that made the allocation. An attempt
that is allocated keeps its claims. All others are deleted once their Pod has ended, also those that
an operator has left which ended between two writes.

Others change claims too. kube-scheduler clears the allocation of a claim if the Pod fits on another
node only, and anybody with the right may delete the claim. As long as the Pod is not bound, the
claim is then created and allocated again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from partita.informer.own_claims import OwnClaim
from partita.informer.views import PodView
from partita.models import Allocation

__all__ = ["AttemptClaims", "plan_claims"]


@dataclass(frozen=True, slots=True)
class AttemptClaims:
    """Actions for the claims of a job."""

    delete: tuple[OwnClaim, ...] = ()
    """Claims that no attempt needs."""
    restore: int | None = None
    """The attempt whose Pod waits for a claim that is missing or has no allocation."""


def plan_claims(
    claims: Iterable[OwnClaim],
    pods: Sequence[PodView],
    allocated: Mapping[str, Allocation],
    *,
    release: bool,
) -> AttemptClaims:
    """Return what to do with the claims of a job.

    Parameters
    ----------
    claims
        The claims of the job.
    pods
        Its Pods.
    allocated
        Its allocations, by GPUServer.
    release
        Whether its allocations are no longer needed.
    """
    claims = list(claims)
    alive = {pod.attempt: pod for pod in pods if pod.alive}
    number = 0 if release else max((a.job_attempt for a in allocated.values()), default=0)
    delete = tuple(
        claim
        for claim in claims
        if not claim.deleting and claim.attempt != number and claim.attempt not in alive
    )
    pod = alive.get(number)
    if pod is None or pod.node or pod.deleting:
        return AttemptClaims(delete)
    found = {claim.name: claim for claim in claims}
    lacking = [name for name in pod.own_claims if name not in found or not found[name].allocated]
    if not lacking or any(name in found and found[name].deleting for name in lacking):
        return AttemptClaims(delete)
    return AttemptClaims(delete, restore=number)
