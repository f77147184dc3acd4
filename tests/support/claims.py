"""ResourceClaims of Partita and their Pods, as the API server has them."""

from typing import Any

from partita.constants import CAPACITY_MEMORY, CAPACITY_THREADS
from partita.models.quantities import format_time
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from support.builders import START, meta, owner

__all__ = [
    "CLASS",
    "a_claim",
    "a_claiming_pod",
    "a_job_claim",
    "claim_allocation_body",
    "claim_body",
    "claim_entry",
    "claim_request",
    "claiming_pod_body",
    "job_claim_body",
]

CLASS = "shared.gpu.partita.dev"


def claim_request(
    device_class: str = CLASS,
    *,
    memory: str | None = None,
    threads: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """One request of a claim: a slice of a GPU of this class."""
    asked = {CAPACITY_MEMORY: memory, CAPACITY_THREADS: threads}
    amounts = {name: amount for name, amount in asked.items() if amount is not None}
    capacity = {"capacity": {"requests": amounts}} if amounts else {}
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {"name": "gpu", "exactly": {**exactly, **capacity, **fields}}


def claim_body(
    name: str = "serve-1-gpu",
    *,
    pod: str = "serve-1",
    namespace: str = "team-a",
    requests: list[dict[str, Any]] | None = None,
    memory: str | None = "8Gi",
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A claim made for a Pod from a template; without a Pod, one that somebody has made."""
    own: dict[str, Any] = {"namespace": namespace, "creationTimestamp": format_time(START)}
    if pod:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}"}
        own["ownerReferences"] = [{**reference, "controller": True}]
    return {
        "metadata": meta(name, **{**own, **(metadata or {})}),
        "spec": {"devices": {"requests": requests or [claim_request(memory=memory)]}},
        "status": status or {},
    }


def a_claim(name: str = "serve-1-gpu", **fields: Any) -> ClaimView:
    """Return a claim of Partita as the operator keeps it."""
    view = ClaimView.parse(claim_body(name, **fields))
    assert view is not None
    return view


def job_claim_body(
    job: str = "train",
    attempt: int = 1,
    *,
    allocated: bool = False,
    metadata: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The claim that the operator has made for an attempt of a job."""
    uid = f"claim-{job}" if attempt == 1 else f"claim-{job}-{attempt}"
    own = {"uid": uid, "ownerReferences": [owner("SharedGPUJob", job)], **(metadata or {})}
    status = {"allocation": claim_allocation_body()} if allocated else {}
    name = f"{job}-{attempt}.partita.dev"
    return claim_body(name, pod="", status=status, metadata=own, **fields)


def a_job_claim(job: str = "train", attempt: int = 1, **fields: Any) -> ClaimView:
    """Return the claim of an attempt as the operator keeps it."""
    view = ClaimView.parse(job_claim_body(job, attempt, **fields))
    assert view is not None
    return view


def claiming_pod_body(
    name: str = "serve-1",
    *,
    namespace: str = "team-a",
    claim: str = "",
    gates: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Pod with a claim from a template; with `claim`, one that names a claim."""
    own: dict[str, Any] = {"namespace": namespace, "creationTimestamp": format_time(START)}
    own |= {"annotations": annotations or {}, "labels": labels or {}, **(metadata or {})}
    if owner:
        own["ownerReferences"] = [{"apiVersion": "apps/v1", "controller": True, **owner}]
    entry = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "gpu-8gi"}
    made = {} if claim else {"resourceClaimName": f"{name}-gpu"}
    return {
        "metadata": meta(name, **own),
        "spec": {
            "containers": [
                {"name": "main", "image": "example.org/serve:1",
                 "resources": {"claims": [{"name": "gpu"}]}}
            ],
            "resourceClaims": [{"name": "gpu", **entry}],
            "restartPolicy": "Always",
            **({"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}),
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {
            "phase": phase,
            **({"resourceClaimStatuses": [{"name": "gpu", **made}]} if made else {}),
            **(status or {}),
        },
    }  # fmt: skip


def a_claiming_pod(name: str = "serve-1", **fields: Any) -> PodView:
    """Return a Pod with a claim as the operator keeps it."""
    view = PodView.parse(claiming_pod_body(name, **fields))
    assert view is not None
    return view


def claim_allocation_body(*gpu_servers: str, driver: str = "gpu.partita.dev") -> dict[str, Any]:
    """The `status.allocation` of a claim, on a GPU if no GPUServers are named."""
    result = {"request": "gpu", "driver": driver, "device": "gpu"}
    return {"devices": {"results": [{**result, "pool": s} for s in gpu_servers or ("shared-0",)]}}


def claim_entry(
    name: str = "serve-1-gpu", *, pod: str = "serve-1", memory: str = "8Gi", **fields: Any
) -> dict[str, Any]:
    """The entry of a claim in the ledger."""
    return {
        "namespace": "team-a",
        "name": name,
        "pod": pod,
        "podUID": f"uid-{pod}",
        "memory": memory,
        "since": format_time(START),
        **fields,
    }
