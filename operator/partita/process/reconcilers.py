"""The reconcilers of all that wants GPUs: SharedGPUJobs, and the claims of other Pods."""

from dataclasses import dataclass

from partita.claims.claim_reconciler import ClaimReconciler
from partita.jobs.job_reconciler import JobReconciler

__all__ = ["Reconcilers"]


@dataclass(frozen=True, slots=True)
class Reconcilers:
    """The reconcilers of jobs and of claims."""

    jobs: JobReconciler
    claims: ClaimReconciler

    def of(self, uid: str) -> JobReconciler | ClaimReconciler:
        """Return the reconciler of a job, or of a claim."""
        return self.claims if self.claims.has(uid) else self.jobs
