"""Kinds of `resource.k8s.io/v1`: defaults, rules and columns.

The rules are those of ``ValidateResourceClaim`` and its kin in k8s.io/kubernetes v1.36.3,
``pkg/apis/resource/validation/validation.go``, as far as clients depend on them. Not checked are
CEL selectors, constraints between requests, the sizes of lists, and shared counters. Quantities are
compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from partita.validation.field_errors import FieldError, Path
from partita.validation.metadata import check_label, check_subdomain
from partita_testcluster.apiserver.meta import amounts, dig, now
from partita_testcluster.apiserver.tables import AGE, Column, compile_path

__all__ = [
    "CLAIM_COLUMNS",
    "SLICE_COLUMNS",
    "check_claim",
    "check_class",
    "check_slice",
    "check_template",
    "prepare_claim",
    "prepare_slice",
    "prepare_template",
]

_Obj = dict[str, Any]

_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
_IMMUTABLE = "field is immutable"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SOURCES = ("FromClaim", "FromClass")
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE = "exactly one of " + ", ".join(f"`{p}`" for p in _PLACES) + " is required"


# -- claims and their templates ---------------------------------------------------------------


def prepare_claim(claim: _Obj, old: _Obj | None) -> None:
    """Set defaults, and drop the statuses of devices that are no longer allocated."""
    _prepare_requests(claim.setdefault("spec", {}))
    status = claim.setdefault("status", {})
    before, allocated = _devices_of(old or {}), _devices_of(claim)
    devices = status.get("devices") or ()
    status["devices"] = [d for d in devices if _device(d) not in before - allocated]
    for result in dig(status, "allocation.devices.results") or ():
        if "consumedCapacity" in result:
            result["consumedCapacity"] = amounts(result["consumedCapacity"])
    for name in ("devices", "reservedFor"):
        if not status.get(name):
            status.pop(name, None)  # as Go's omitempty


def prepare_template(template: _Obj, _old: _Obj | None) -> None:
    """Set the defaults of a ResourceClaimTemplate."""
    _prepare_requests(template.setdefault("spec", {}).setdefault("spec", {}))


def check_claim(claim: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a ResourceClaim: the spec never changes, an allocation only ends."""
    if old is None:
        return _check_spec(claim["spec"], ("spec",))
    errors = []
    if claim["spec"] != old["spec"]:
        errors.append(FieldError(("spec",), "Invalid value", _IMMUTABLE, claim["spec"]))
    return errors + _check_status(claim, old)


def check_template(template: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a ResourceClaimTemplate; its spec never changes."""
    if old is None:
        return _check_spec(template["spec"]["spec"], ("spec", "spec"))
    if template["spec"] == old["spec"]:
        return []
    return [FieldError(("spec",), "Invalid value", _IMMUTABLE, template["spec"])]


def _prepare_requests(spec: _Obj) -> None:
    """Set the defaults of the requests of a claim (pkg/apis/resource/v1/defaults.go)."""
    for request in spec.setdefault("devices", {}).get("requests") or ():
        exactly = request.get("exactly")
        for part in [exactly] if exactly else request.get("firstAvailable") or ():
            part.setdefault("allocationMode", "ExactCount")
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1
            if "requests" in (part.get("capacity") or {}):
                part["capacity"]["requests"] = amounts(part["capacity"]["requests"])


def _check_spec(spec: _Obj, place: Path) -> list[FieldError]:
    devices, place = spec["devices"], (*place, "devices")
    requests = devices.get("requests") or []
    errors = _duplicates((r["name"] for r in requests), (*place, "requests"))
    for i, request in enumerate(requests):
        errors += _check_request(request, (*place, "requests", i))
    names = _request_names(spec)
    for i, config in enumerate(devices.get("config") or ()):
        errors += _check_config(config, names, (*place, "config", i))
    return errors


def _check_request(request: _Obj, place: Path) -> list[FieldError]:
    errors = check_label(request["name"], (*place, "name"))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        return [*errors, FieldError(place, "Required value", _ONE_KIND)]
    if exactly is not None and alternatives:
        detail = f"{_ONE_KIND}, but multiple fields are set"
        return [*errors, FieldError(place, "Invalid value", detail, None)]
    if exactly is not None:
        return errors + _check_choice(exactly, (*place, "exactly"))
    for i, choice in enumerate(alternatives):
        where = (*place, "firstAvailable", i)
        errors += check_label(choice["name"], (*where, "name")) + _check_choice(choice, where)
    return errors + _duplicates((a["name"] for a in alternatives), (*place, "firstAvailable"))


def _check_choice(choice: _Obj, place: Path) -> list[FieldError]:
    errors = check_subdomain(choice["deviceClassName"], (*place, "deviceClassName"))
    mode, count = choice["allocationMode"], choice.get("count", 0)
    if mode not in ("All", "ExactCount"):
        detail = 'supported values: "All", "ExactCount"'
        errors.append(FieldError((*place, "allocationMode"), "Unsupported value", detail, mode))
    elif mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        errors.append(FieldError((*place, "count"), "Invalid value", detail, count))
    elif mode == "ExactCount" and count <= 0:
        detail = "must be greater than zero"
        errors.append(FieldError((*place, "count"), "Invalid value", detail, count))
    return errors + _check_selectors(choice, place)


def _check_selectors(holder: _Obj, place: Path) -> list[FieldError]:
    return [
        FieldError((*place, "selectors", i, "cel"), "Required value")
        for i, selector in enumerate(holder.get("selectors") or ())
        if not selector.get("cel")
    ]


def _check_config(config: _Obj, names: set[str], place: Path) -> list[FieldError]:
    errors = [
        error
        for i, name in enumerate(config.get("requests") or ())
        for error in _check_reference(name, names, (*place, "requests", i))
    ]
    if not config.get("opaque"):
        return [*errors, FieldError((*place, "opaque"), "Required value")]
    return errors + check_subdomain(config["opaque"]["driver"], (*place, "opaque", "driver"))


def _check_reference(name: str, names: set[str], place: Path) -> list[FieldError]:
    if name in names:
        return []
    detail = (
        "must be the name of a request in the claim or the name of a request and a subrequest "
        "separated by '/'"
    )
    return [FieldError(place, "Invalid value", detail, name)]


def _request_names(spec: _Obj) -> set[str]:
    """Return the names with which other fields refer to requests and their alternatives."""
    names = set()
    for request in spec["devices"].get("requests") or ():
        alternatives = request.get("firstAvailable") or ()
        names |= {request["name"], *(f"{request['name']}/{a['name']}" for a in alternatives)}
    return names


def _check_status(claim: _Obj, old: _Obj) -> list[FieldError]:
    status, before = claim["status"], old.get("status") or {}
    place: Path = ("status",)
    allocation, reserved = status.get("allocation"), status.get("reservedFor") or []
    errors = _duplicates((r["uid"] for r in reserved), (*place, "reservedFor"))
    for i, user in enumerate(reserved):
        errors += [
            FieldError((*place, "reservedFor", i, key), "Required value")
            for key in ("resource", "name", "uid")
            if not user[key]
        ]
    allocated = _devices_of(claim)
    for i, device in enumerate(status.get("devices") or ()):
        if _device(device) not in allocated:
            detail = "must be an allocated device in the claim"
            where = (*place, "devices", i)
            errors.append(FieldError(where, "Invalid value", detail, device["device"]))
    users = (*place, "reservedFor")
    if reserved and allocation is None:
        detail = "may not be specified when `allocated` is not set"
        errors.append(FieldError(users, "Forbidden", detail))
    elif claim["metadata"].get("deletionTimestamp") and not (
        {u["uid"] for u in reserved} <= {u["uid"] for u in before.get("reservedFor") or ()}
    ):
        detail = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        errors.append(FieldError(users, "Forbidden", detail))
    field = (*place, "allocation")
    if allocation is not None and before.get("allocation") is not None:
        if allocation != before["allocation"]:
            errors.append(FieldError(field, "Invalid value", _IMMUTABLE, allocation))
    elif allocation is not None:
        errors += _check_allocation(allocation, _request_names(claim["spec"]), field)
    return errors


def _check_allocation(allocation: _Obj, names: set[str], place: Path) -> list[FieldError]:
    errors = []
    devices, place = allocation.get("devices") or {}, (*place, "devices")
    for i, result in enumerate(devices.get("results") or ()):
        where = (*place, "results", i)
        errors += _check_reference(result["request"], names, (*where, "request"))
        errors += check_subdomain(result["driver"], (*where, "driver"))
        errors += [
            error
            for part in result["pool"].split("/")
            for error in check_subdomain(part, (*where, "pool"))
        ]
        errors += check_label(result["device"], (*where, "device"))
        if "shareID" in result and _UUID.fullmatch(result["shareID"]) is None:
            detail = "error validating uid: write a lowercase UUID"
            wrong = result["shareID"]
            errors.append(FieldError((*where, "shareID"), "Invalid value", detail, wrong))
    for i, config in enumerate(devices.get("config") or ()):
        where = (*place, "config", i)
        if config["source"] not in _SOURCES:
            detail = _supported(_SOURCES)
            wrong = config["source"]
            errors.append(FieldError((*where, "source"), "Unsupported value", detail, wrong))
        errors += _check_config(config, names, where)
    return errors


def _devices_of(claim: _Obj) -> set[Hashable]:
    """Return the allocated devices of a claim."""
    return {_device(r) for r in dig(claim, "status.allocation.devices.results") or ()}


def _device(result: Mapping[str, Any]) -> Hashable:
    return (result["driver"], result["pool"], result["device"], result.get("shareID", ""))


def _claim_state(claim: _Obj) -> list[Any]:
    """Return the state that kubectl shows (``resourceClaimState`` in printers/internalversion)."""
    deleted = "deletionTimestamp" in claim["metadata"]
    states = ["deleted"] if deleted else []
    if dig(claim, "status.allocation") is not None:
        states += ["allocated", *(["reserved"] if dig(claim, "status.reservedFor") else [])]
    elif not deleted:
        states.append("pending")
    return [",".join(states)]


# -- classes and slices -----------------------------------------------------------------------


def prepare_slice(slice_: _Obj, _old: _Obj | None) -> None:
    """Set the defaults of a ResourceSlice."""
    for device in slice_["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now())


def check_class(class_: _Obj, _old: _Obj | None) -> list[FieldError]:
    """Return the violations in a DeviceClass."""
    spec = class_.get("spec") or {}
    errors = _check_selectors(spec, ("spec",))
    for i, config in enumerate(spec.get("config") or ()):
        errors += _check_config(config, set(), ("spec", "config", i))
    return errors


def check_slice(slice_: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a ResourceSlice; its driver, pool and node never change."""
    spec, place = slice_["spec"], ("spec",)
    errors = check_subdomain(spec["driver"], (*place, "driver"))
    if spec["pool"]["resourceSliceCount"] <= 0:
        detail, wrong = "must be greater than zero", spec["pool"]["resourceSliceCount"]
        where = (*place, "pool", "resourceSliceCount")
        errors.append(FieldError(where, "Invalid value", detail, wrong))
    if old is not None:
        errors += [
            FieldError((*place, *path.split(".")), "Invalid value", _IMMUTABLE, dig(spec, path))
            for path in ("pool.name", "driver", "nodeName")
            if dig(spec, path) != dig(old["spec"], path)
        ]
    given = [p for p in _PLACES if spec.get(p)]
    if not given:
        errors.append(FieldError(place, "Required value", _ONE_PLACE))
    elif len(given) > 1:
        detail = f"{_ONE_PLACE}, but multiple fields are set"
        wrong = "{" + ", ".join(f"`{p}`" for p in given) + "}"
        errors.append(FieldError(place, "Invalid value", detail, wrong))
    devices = spec.get("devices") or []
    errors += _duplicates((d["name"] for d in devices), (*place, "devices"))
    for i, device in enumerate(devices):
        errors += list(_check_device(device, (*place, "devices", i)))
    return errors


def _check_device(device: _Obj, place: Path) -> Iterator[FieldError]:
    yield from check_label(device["name"], (*place, "name"))
    for i, taint in enumerate(device.get("taints") or ()):
        if taint["effect"] not in _EFFECTS:
            where, wrong = (*place, "taints", i, "effect"), taint["effect"]
            yield FieldError(where, "Unsupported value", _supported(_EFFECTS), wrong)


def _supported(values: Sequence[str]) -> str:
    return "supported values: " + ", ".join(f'"{v}"' for v in values)


def _duplicates(keys: Iterable[str], place: Path) -> list[FieldError]:
    """Return an error for each key that is not the first of its value."""
    seen: set[str] = set()
    errors = []
    for i, key in enumerate(keys):
        if key in seen:
            errors.append(FieldError((*place, i), "Duplicate value", "", key))
        seen.add(key)
    return errors


CLAIM_COLUMNS = (Column("State", "string", _claim_state), AGE)
"""Columns of `kubectl get resourceclaims`."""
SLICE_COLUMNS = (
    Column("Node", "string", lambda s: [s["spec"].get("nodeName", "")]),
    Column("Driver", "string", compile_path(".spec.driver")),
    Column("Pool", "string", compile_path(".spec.pool.name")),
    AGE,
)
"""Columns of `kubectl get resourceslices`."""
