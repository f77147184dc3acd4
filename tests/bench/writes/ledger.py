"""Writes of a GPUServer's status: the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from bench.writes.schemas import changed, opaque, without
from bench.writes.variant import IGNORE, OBJECTS, Comparison, Json, Variant, custom
from partita.models import crd

__all__ = ["ledgers"]

ROOM = 20
"""Allocations on a GPU: as many as `make bench-scale` has at most."""
_MADE = {"spec": {"partition": "partition-0", "maxJobs": ROOM}}
_REPORT = {
    "node": "node-0",
    "uuid": "GPU-00000000-0000-4000-8000-000000000000",
    "product": "NVIDIA A100-SXM4-40GB",
    "memory": "40Gi",
    "smCount": 108,
    "pcieBandwidth": "32G",
    "driverVersion": "610.43.02",
    "maxClients": 60,
    "enforcement": "Client",
    "protocol": 2,
    "mps": {"state": "Ready", "clients": 4, "canary": {"checks": 3, "durationMilliseconds": 250}},
    "usage": {"memory": "20Gi", "gpuUtilization": 80},
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "jobs may be placed",
            "lastTransitionTime": "2026-11-24T08:00:00Z",
        }
    ],
}


_NO_OWNERS: tuple[Json, ...] = ({"metadata": {"managedFields": [{}]}},)


def definition() -> Json:
    """Return the CRD of GPUServers as it is."""
    return next(c for c in crd.crds() if c["spec"]["names"]["plural"] == "gpuservers")


def _entry(number: int) -> Json:
    return {
        "namespace": f"team-{number % 7}",
        "name": f"training-run-{number}",
        "attempt": 1,
        "memory": "1Gi",
        "threadPercent": 100,
        "slots": 1,
        "clients": 1,
        "alone": False,
        "lasting": False,
        "pod": "",
        "podUID": "",
        "application": "",
        "since": f"2026-11-24T08:{number // 60 % 60:02}:{number % 60:02}Z",
    }


def _short(number: int) -> Json:
    unset = {"threadPercent", "slots", "clients", "alone", "lasting", "pod", "podUID"}
    unset |= {"application"}
    return {key: value for key, value in _entry(number).items() if key not in unset}


def _text(number: int) -> str:
    entry = _entry(number)
    return (
        f"{entry['namespace']}/{entry['name']} attempt={entry['attempt']} "
        f"memory={entry['memory']} since={entry['since']}"
    )


def _uid(number: int) -> str:
    return f"{number:08x}-5e1b-4c1e-9d57-3c8f8a1b2c3d"


def _patch(entry: Any, count: int) -> Any:
    """Return the patches that replace `count` of the allocations by others, in turn."""

    def body(_: Json, number: int) -> Json:
        turn = number // OBJECTS  # of this object: requests go to eight of them
        changes: Json = {}
        for each in range(count):
            place = (turn * count + each) % ROOM
            round_ = (turn * count + each) // ROOM
            changes[_uid(place + ROOM * (round_ % 2))] = None
            changes[_uid(place + ROOM * ((round_ + 1) % 2))] = entry(number * ROOM + each)
        return {"status": {"allocations": changes}}

    return body


def _full(entry: Any) -> Json:
    return {**_REPORT, "allocations": {_uid(n): entry(n) for n in range(ROOM)}}


def _variant(name: str, made: Json, entry: Any, count: int, **more: Any) -> Variant:
    return custom(
        name, made, _MADE, _patch(entry, count), subresource="status", status=_full(entry), **more
    )


def _texts() -> Json:
    return changed(definition(), "status.allocations", _as_texts)


def _as_texts(schema: Json) -> None:
    schema["additionalProperties"] = {"type": "string", "maxLength": 1024}


def ledgers() -> Iterator[Comparison]:
    """Return the comparisons of ledger writes."""
    objects = deepcopy(definition())
    for count in (1, 5, 20):
        yield Comparison(
            f"ledger-{count}: all fields / only set fields",
            _variant("all", objects, _entry, count),
            _variant("set", objects, _short, count),
        )
    for count in (1, 5, 20):
        yield Comparison(
            f"ledger-{count}: all fields / one string each",
            _variant("all", objects, _entry, count),
            _variant("strings", _texts(), _text, count),
        )
    yield Comparison(
        "ledger-5: all fields / all fields without owners",
        _variant("owners", objects, _entry, 5),
        _variant("none", objects, _entry, 5, prepare=_NO_OWNERS),
    )
    yield Comparison(
        "ledger-5: all fields / only set fields without owners",
        _variant("all", objects, _entry, 5),
        _variant("set", objects, _short, 5, prepare=_NO_OWNERS),
    )
    without_owners = _variant("set", objects, _short, 5, prepare=_NO_OWNERS)
    unchecked = changed(definition(), "status.allocations", opaque)
    yield Comparison(
        "ledger-5: only set fields without owners / without a schema",
        without_owners,
        _variant("open", unchecked, _short, 5, prepare=_NO_OWNERS),
    )
    yield Comparison(
        "ledger-5: only set fields without owners / one string each",
        _variant("set", objects, _short, 5, prepare=_NO_OWNERS),
        _variant("strings", _texts(), _text, 5, prepare=_NO_OWNERS),
    )
    yield Comparison(
        "ledger-5: only set fields without owners / unknown fields ignored",
        _variant("set", objects, _short, 5, prepare=_NO_OWNERS),
        _variant("ignore", objects, _short, 5, prepare=_NO_OWNERS, query=IGNORE),
    )
    for key in ("anyOf", "pattern"):
        yield Comparison(
            f"ledger-5: only set fields without owners / without {key}",
            _variant("set", objects, _short, 5, prepare=_NO_OWNERS),
            _variant(
                "less", changed(definition(), "", without(key)), _short, 5, prepare=_NO_OWNERS
            ),
        )
