"""Kinds of `resource.k8s.io/v1`: the defaults and rules that no schema can express.

The rules are those of ``ValidateResourceClaim`` and its kin in k8s.io/kubernetes v1.36.3,
``pkg/apis/resource/validation/validation.go``, as far as clients depend on them. Not checked are
CEL selectors, constraints between requests, the sizes of lists, the statuses of devices, and shared
counters. Quantities are compared as text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from partita.validation.field_errors import FieldError, Path, duplicates

__all__ = ["CLAIM_RULES"]

_Obj = dict[str, Any]

_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
_IMMUTABLE = "field is immutable"
_POSITIVE = "must be greater than zero"
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE = "exactly one of " + ", ".join(f"`{p}`" for p in _PLACES) + " is required"


# -- claims and their templates ---------------------------------------------------------------


def _prepare_claim(claim: _Obj, _old: _Obj | None) -> None:
    """Set defaults."""
    _prepare_requests(claim["spec"])
    if not claim["status"].get("reservedFor"):
        claim["status"].pop("reservedFor", None)  # as Go's omitempty


def _prepare_template(template: _Obj, _old: _Obj | None) -> None:
    """Set the defaults of a ResourceClaimTemplate."""
    _prepare_requests(template["spec"]["spec"])


def _check_claim(claim: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a ResourceClaim: the spec never changes, an allocation only ends."""
    if old is None:
        return _check_spec(claim["spec"], ("spec",))
    errors = []
    if claim["spec"] != old["spec"]:
        errors.append(FieldError(("spec",), "Invalid value", _IMMUTABLE, claim["spec"]))
    return errors + _check_status(claim, old)


def _check_template(template: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a ResourceClaimTemplate; its spec never changes."""
    if old is None:
        return _check_spec(template["spec"]["spec"], ("spec", "spec"))
    if template["spec"] == old["spec"]:
        return []
    return [FieldError(("spec",), "Invalid value", _IMMUTABLE, template["spec"])]


def _prepare_requests(spec: _Obj) -> None:
    """Set the number of devices of the requests of a claim."""
    for request in spec["devices"].get("requests") or ():
        exactly = request.get("exactly")
        for part in [exactly] if exactly else request.get("firstAvailable") or ():
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1


def _check_spec(spec: _Obj, place: Path) -> list[FieldError]:
    devices, place = spec["devices"], (*place, "devices")
    requests = devices.get("requests") or []
    errors = duplicates(requests, (*place, "requests"), "name", below=False)
    for i, request in enumerate(requests):
        errors += _check_request(request, (*place, "requests", i))
    names = _request_names(spec)
    for i, config in enumerate(devices.get("config") or ()):
        errors += _check_config(config, names, (*place, "config", i))
    return errors


def _check_request(request: _Obj, place: Path) -> list[FieldError]:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        return [FieldError(place, "Required value", _ONE_KIND)]
    if exactly is not None and alternatives:
        detail = f"{_ONE_KIND}, but multiple fields are set"
        return [FieldError(place, "Invalid value", detail, None)]
    if exactly is not None:
        return _check_count(exactly, (*place, "exactly", "count"))
    place = (*place, "firstAvailable")
    errors = duplicates(alternatives, place, "name", below=False)
    for i, choice in enumerate(alternatives):
        errors += _check_count(choice, (*place, i, "count"))
    return errors


def _check_count(choice: _Obj, place: Path) -> list[FieldError]:
    count = choice.get("count", 0)
    if choice["allocationMode"] == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        return [FieldError(place, "Invalid value", detail, count)]
    if choice["allocationMode"] == "ExactCount" and count <= 0:
        return [FieldError(place, "Invalid value", _POSITIVE, count)]
    return []


def _check_config(config: _Obj, names: set[str], place: Path) -> list[FieldError]:
    return [
        error
        for i, name in enumerate(config.get("requests") or ())
        for error in _check_reference(name, names, (*place, "requests", i))
    ]


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
    errors = duplicates(reserved, (*place, "reservedFor"), "uid", below=False)
    for i, user in enumerate(reserved):
        errors += [
            FieldError((*place, "reservedFor", i, key), "Required value")
            for key in ("resource", "name", "uid")
            if not user[key]
        ]
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
    devices, place = allocation.get("devices") or {}, (*place, "devices")
    errors = []
    for i, result in enumerate(devices.get("results") or ()):
        errors += _check_reference(result["request"], names, (*place, "results", i, "request"))
    for i, config in enumerate(devices.get("config") or ()):
        errors += _check_config(config, names, (*place, "config", i))
    return errors


# -- classes and slices -----------------------------------------------------------------------


def _prepare_slice(slice_: _Obj, _old: _Obj | None) -> None:
    """Set when the taints of the devices of a ResourceSlice were added."""
    for device in slice_["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def _check_class(class_: _Obj, _old: _Obj | None) -> list[FieldError]:
    """Return the violations in a DeviceClass, which has no requests to which it could refer."""
    configs = enumerate(class_["spec"].get("config") or ())
    return [e for i, config in configs for e in _check_config(config, set(), ("spec", "config", i))]


def _check_slice(slice_: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a ResourceSlice; its driver, pool and node never change."""
    spec, place = slice_["spec"], ("spec",)
    errors = duplicates(spec.get("devices") or [], (*place, "devices"), "name", below=False)
    if (count := spec["pool"]["resourceSliceCount"]) <= 0:
        where = (*place, "pool", "resourceSliceCount")
        errors.append(FieldError(where, "Invalid value", _POSITIVE, count))
    if old is not None:
        before = old["spec"]
        fixed = {
            ("pool", "name"): (spec["pool"]["name"], before["pool"]["name"]),
            ("driver",): (spec["driver"], before["driver"]),
            ("nodeName",): (spec.get("nodeName"), before.get("nodeName")),
        }
        errors += [
            FieldError((*place, *path), "Invalid value", _IMMUTABLE, now)
            for path, (now, then) in fixed.items()
            if now != then
        ]
    given = [p for p in _PLACES if spec.get(p)]
    if not given:
        errors.append(FieldError(place, "Required value", _ONE_PLACE))
    elif len(given) > 1:
        detail = f"{_ONE_PLACE}, but multiple fields are set"
        wrong = "{" + ", ".join(f"`{p}`" for p in given) + "}"
        errors.append(FieldError(place, "Invalid value", detail, wrong))
    return errors


CLAIM_RULES: Final[dict[str, dict[str, Any]]] = {
    "DeviceClass": {"check": _check_class},
    "ResourceClaim": {"prepare": _prepare_claim, "check": _check_claim},
    "ResourceClaimTemplate": {"prepare": _prepare_template, "check": _check_template},
    "ResourceSlice": {"prepare": _prepare_slice, "check": _check_slice},
}
"""What sets defaults and what checks, by kind."""
