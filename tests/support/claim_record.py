"""What must never have been among the versions of claims, their Pods and the ledgers. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from partita.constants import COMPONENT_PROBE, LABEL_COMPONENT
from partita.models.device_class import names_device_class
from partita.pods.own_claims import is_own_claim
from support.versions import Body, Version, allocated_spans, entries_of, life_of

__all__ = ["claims_allocated_twice", "spans_of_pod", "workloads_without_allocation"]

Life = Sequence[Version]


def claims_allocated_twice(servers: Sequence[Life], claims: Sequence[Life]) -> Iterator[str]:
    """Name claims that were in the ledgers of more GPUs at once than they ask for."""
    wanted = {life[0].body["metadata"]["uid"]: _count(life[0].body) for life in claims}
    spans: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for versions in servers:
        name = versions[0].body["metadata"]["name"]
        for uid in {uid for version in versions for uid in entries_of(version.body)}:
            spans[uid] += [(*span, name) for span in allocated_spans(versions, _has(uid))]
    for uid, theirs in spans.items():
        for begin, _, _ in theirs:
            there = sorted(name for first, end, name in theirs if first <= begin < end)
            if len(there) > wanted.get(uid, 1):
                yield f"claim {uid} was allocated on {' and on '.join(there)} at {begin}"


def workloads_without_allocation(
    pods: Sequence[Life],
    claims: Sequence[Life],
    servers: Sequence[Life],
    *,
    by_hand: Collection[int],
) -> Iterator[str]:
    """Name Pods with claims of Partita that ran while the ledger did not have them.

    A probe Pod needs no allocation: it runs before jobs may, and uses no memory.

    Parameters
    ----------
    by_hand
        Versions of ledgers that a test has written.
    """
    bodies = [life[0].body for life in claims]
    ours = [b for b in bodies if names_device_class(b["spec"]) and not _is_of_probe(b)]
    for versions in pods:
        pod = versions[0].body
        began = next((v.number for v in versions if _runs(v.body)), None)
        asked = [_count(claim) for claim in ours if _uses(pod, claim)]
        if began is None or not asked:
            continue
        _, end = life_of(versions)
        uid = pod["metadata"]["uid"]
        spans = [span for life in servers for span in spans_of_pod(life, uid)]
        covered = sum(first < began and end <= last for first, last in spans)
        if covered < max(asked) and not any(last in by_hand for _, last in spans):
            name = pod["metadata"]["name"]
            yield f"{name} ran from {began} to {end}, but was allocated {spans}"


def spans_of_pod(server: Life, pod: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where a GPU was allocated for a Pod; from the start if it always was.

    The record may have forgotten what was before.
    """
    for first, last in allocated_spans(server, _is_for(pod)):
        yield (0 if first == server[0].number else first), last


def _uses(pod: Body, claim: Body) -> bool:
    """Tell whether a claim was made for a Pod, or is named by it."""
    uid, entries = pod["metadata"]["uid"], (pod.get("spec") or {}).get("resourceClaims") or ()
    meta = claim["metadata"]
    if not entries or meta["namespace"] != pod["metadata"]["namespace"]:
        return False
    return meta["name"] in {entry.get("resourceClaimName") for entry in entries} or any(
        owner["uid"] == uid for owner in meta.get("ownerReferences") or ()
    )


def _is_of_probe(claim: Body) -> bool:
    """Tell the claim of a probe Pod; only the operator makes claims with such names."""
    meta = claim["metadata"]
    label = (meta.get("labels") or {}).get(LABEL_COMPONENT)
    return is_own_claim(meta["name"]) and label == COMPONENT_PROBE


def _count(claim: Body) -> int:
    """Return on how many GPUs a claim wants a device."""
    (request, *_) = claim["spec"]["devices"]["requests"]
    return int((request.get("exactly") or {}).get("count", 1))


def _runs(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _has(uid: str) -> Callable[[Body], bool]:
    return lambda entries: uid in entries


def _is_for(pod: str) -> Callable[[Body], bool]:
    return lambda entries: any(entry.get("podUID") == pod for entry in entries.values())
