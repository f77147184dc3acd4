"""Writes of a SharedGPUJob's status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bench.writes.schemas import changed, granular, opaque, without
from bench.writes.variant import (
    CBOR,
    CREATE,
    IGNORE,
    MERGE,
    METADATA_ONLY,
    OBJECTS,
    PUT,
    Comparison,
    Json,
    Variant,
    custom,
)
from partita.models import crd

__all__ = ["jobs"]

_SMALL = {"containers": [{"name": "main", "image": "bench"}]}
_MADE: Json = {
    "spec": {
        "partition": "partition-0",
        "gpuMemory": "1Gi",
        "priority": 50,
        "template": {"metadata": {"annotations": {"team": "vision"}}, "spec": _SMALL},
    }
}
_LARGE_TEMPLATE: Json = {
    "metadata": {"labels": {f"label-{n}": "value" for n in range(10)}},
    "spec": {
        "containers": [
            {
                "name": f"main-{n}",
                "image": "registry.example.com/team/training:2026-11-24",
                "command": ["python", "-m", "train"],
                "args": [f"--option-{each}=value" for each in range(20)],
                "env": [{"name": f"VARIABLE_{each}", "value": "value"} for each in range(30)],
                "resources": {"requests": {"cpu": "4", "memory": "16Gi"}},
                "volumeMounts": [{"name": f"v{e}", "mountPath": f"/mnt/{e}"} for e in range(5)],
            }
            for n in range(2)
        ],
        "volumes": [{"name": f"v{each}", "emptyDir": {}} for each in range(5)],
    },
}


def definition() -> Json:
    """Return the CRD of SharedGPUJobs as it is."""
    return next(c for c in crd.crds() if c["spec"]["names"]["plural"] == "sharedgpujobs")


def _time(number: int) -> str:
    return f"2026-11-24T08:{number // 60 % 60:02}:{number % 60:02}Z"


def _attempt(attempt: int, number: int, *, ended: bool) -> Json:
    end = {"endTime": _time(number + 2), "outcome": "Succeeded", "exitCode": 0}
    return {
        "number": attempt,
        "pod": f"training-run-1-{attempt}",
        "podUID": "5e1b4c1e-9d57-3c8f-8a1b-2c3d4e5f6071",
        "node": "node-0",
        "gpus": ["GPU-00000000-0000-4000-8000-000000000000"],
        "servers": ["partition-0-abcde"],
        "beside": ["team-1/training-run-2", "team-1/training-run-3"],
        "memory": "1Gi",
        "queuedTime": _time(number),
        "bookedTime": _time(number),
        "startTime": _time(number + 1),
        **(end if ended else {}),
    }


def _condition(kind: str, status: str, reason: str, number: int) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": _time(number),
        "observedGeneration": 1,
    }


def status(number: int, *, attempts: int = 1) -> Json:
    """Return a status; that of every other number is of a job that has finished."""
    ended = number // OBJECTS % 2 == 1
    first = [_attempt(n, number, ended=True) for n in range(1, attempts)]
    conditions = [_condition("Scheduled", "False" if ended else "True", "Assigned", number)]
    if ended:
        conditions.append(_condition("Complete", "True", "Succeeded", number))
    return {
        "observedGeneration": 1,
        "phase": "Succeeded" if ended else "Running",
        "reason": "",
        "message": "",
        "conditions": conditions,
        "assignment": {
            "servers": ["partition-0-abcde"],
            "gpus": ["GPU-00000000-0000-4000-8000-000000000000"],
            "node": "node-0",
            "memory": "1Gi",
            "threadPercent": 100,
            "pod": "training-run-1-1",
            "attempt": attempts,
            "beside": ["team-1/training-run-2", "team-1/training-run-3"],
        },
        "attempts": [*first, _attempt(attempts, number, ended=ended)],
        "startTime": _time(number + 1),
        **({"completionTime": _time(number + 2)} if ended else {}),
        "retry": "",
    }


def _body(attempts: int = 1) -> Callable[[Json, int], Json]:
    return lambda _, number: {"status": status(number, attempts=attempts)}


def _spec(**fields: Any) -> Json:
    return {**_MADE, "spec": {**_MADE["spec"], **fields}}


def _variant(name: str, made: Json | None = None, **more: Any) -> Variant:
    given: Json = {"subresource": "status", "status": status(0), **more}
    return custom(
        name, made or definition(), given.pop("object", _MADE), given.pop("body", _body()), **given
    )


def _json_patch(_: Json, number: int) -> Any:
    return [{"op": "replace", "path": "/status", "value": status(number)}]


def _applied(variant: Variant) -> Variant:
    """Return a variant that applies the status, instead of merging it."""
    kind = {key: variant.object[key] for key in ("apiVersion", "kind")}
    return replace(
        variant,
        how=("PATCH", "application/apply-patch+yaml"),
        body=lambda _, number: {**kind, "status": status(number)},
        query="?fieldManager=bench&force=true",
    )


def _keyed(schema: Json) -> None:
    """Have the API server find the items of a list by a key, as server-side apply may need it."""
    for name, key in (("attempts", "number"), ("conditions", "type")):
        schema["properties"][name] |= {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [key],
        }


def _without_rule(schema: Json) -> None:
    rules = schema["x-kubernetes-validations"]
    rules[:] = [rule for rule in rules if "oldSelf" not in rule["rule"]]


def _by_fields(schema: Json) -> None:
    """Have the rule on changes of running jobs compare all fields in writes of a status."""
    for rule in schema["x-kubernetes-validations"]:
        before, found, after = rule["rule"].partition("self.status.phase != oldSelf.status.phase")
        if found:
            rule["rule"] = f"{before}false{after}"


def _created(name: str, made: Json | None = None, **more: Any) -> Variant:
    given: Json = {"how": CREATE, "body": lambda made, _: made, **more}
    return custom(name, made or definition(), _MADE, given.pop("body"), **given)


def jobs() -> Iterator[Comparison]:
    """Return the comparisons of writes of jobs."""
    now = definition()

    def schema(
        name: str, what: str, path: str, change: Callable[[Json], None], **more: Any
    ) -> Comparison:
        return Comparison(
            f"job: {what}",
            _variant("now", **more),
            _variant(name, changed(now, path, change), **more),
        )

    many: Json = {"status": status(0, attempts=30), "body": _body(30)}
    yield Comparison("job: the same twice", _variant("once"), _variant("again"))
    yield schema("none", "rules / no rules", "", without("x-kubernetes-validations"))
    yield schema("without", "anyOf / only int-or-string", "", without("anyOf"))
    yield schema("without", "patterns / without", "", without("pattern"))
    yield schema("without", "formats / without", "", without("format"))
    yield schema("fields", "status atomic / owners of its fields", "status", granular)
    yield schema("fields", "rule by phase first / by fields", "", _by_fields)
    yield schema("none", "rule by phase first / without it", "", _without_rule)
    yield schema("open", "template / template without a schema", "spec.template", opaque)
    yield Comparison(
        "job: owners of fields / none",
        _variant("owners"),
        _variant("none", prepare=({"metadata": {"managedFields": [{}]}},)),
    )
    yield Comparison("job: 1 attempt / 30 attempts", _variant("1"), _variant("30", **many))
    yield schema("keys", "lists atomic / with keys", "status", _keyed)
    yield schema("keys", "30 attempts: lists atomic / with keys", "status", _keyed, **many)
    yield Comparison(
        "job: small template / large template",
        _variant("small"),
        _variant("large", object=_spec(template=_LARGE_TEMPLATE)),
    )
    yield Comparison("job: merge patch / PUT", _variant("merge"), _variant("put", how=PUT))
    yield Comparison(
        "job: merge patch / JSON patch",
        _variant("merge"),
        _variant("json", how=("PATCH", "application/json-patch+json"), body=_json_patch),
    )
    yield Comparison("job: merge patch / apply", _variant("merge"), _applied(_variant("apply")))
    yield Comparison(
        "job: whole answer / only metadata",
        _variant("whole"),
        _variant("metadata", accept=METADATA_ONLY),
    )
    yield Comparison(
        "job: unknown fields reported / ignored",
        _variant("warn"),
        _variant("ignore", query=IGNORE),
    )
    yield Comparison(
        "job: create in JSON / in CBOR",
        _created("json"),
        _created("cbor", body=lambda made, _: made, how=("POST", CBOR), accept=CBOR),
        feature="CBORServingAndStorage",
    )
    yield Comparison(
        "job: create / create without rules",
        _created("rules"),
        _created("none", changed(now, "", without("x-kubernetes-validations"))),
    )
    yield Comparison(
        "job: status / annotation",
        _variant("status"),
        _variant(
            "annotation",
            how=MERGE,
            subresource="",
            body=lambda _, number: {
                "metadata": {"annotations": {"partita.dev/status": f"Running {number}"}}
            },
        ),
    )
