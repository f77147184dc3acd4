"""The metrics of claims; `definitions` has the others."""

from partita.metric import LONG, MINUTE, SOON, Metric, Section

__all__ = ["CLAIMS", "QUEUED_TIME", "SECTION", "START_TIME", "STEPS", "STEP_WORDS"]

CLAIMS = Metric(
    "partita_claims",
    "gauge",
    "ResourceClaims of Pods, by phase: Gated (another controller has not admitted the Pod), "
    "Queued, Assigned (allocated, and no container has run), Running or Ending.",
    ("partition", "phase"),
)
STEP_WORDS = ("Allocated", "Started", "Grown", "Released", "TakenBack", "Refused")
STEPS = Metric(
    "partita_claim_steps_total",
    "counter",
    "Steps of ResourceClaims: Allocated, Started (a container ran), Grown (more memory after it "
    "ran out of memory), Released, TakenBack (released before a container ran), Refused (it cannot "
    "be allocated as it is written).",
    ("partition", "step"),
)
QUEUED_TIME = Metric(
    "partita_claim_queue_seconds",
    "histogram",
    "Time from when a claim was created, or released, until it was allocated.",
    ("partition",),
    SOON + LONG,
)
START_TIME = Metric(
    "partita_claim_pod_start_seconds",
    "histogram",
    "Time from the allocation of a claim until a container of its Pod ran.",
    ("partition",),
    (*SOON, 5 * MINUTE, 15 * MINUTE),
)

SECTION = Section(
    "Claims",
    "Pods of any controller that have a slice by a ResourceClaim. They wait in the same queue as "
    "jobs. A claim is Running from when the first container of its Pod has run.",
    (CLAIMS, STEPS, QUEUED_TIME, START_TIME),
)
