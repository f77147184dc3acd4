"""CustomResourceDefinitions: their defaults and rules, and the kinds they add."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partita.embedded.compiler import SchemaError
from partita.embedded.errors import FieldError
from partita.embedded.meta import now
from partita.embedded.resources import Resource, custom_resource
from partita.embedded.store import Collection

__all__ = ["check_crd", "prepare_crd", "served_resources"]


def prepare_crd(crd: dict[str, Any], _old: dict[str, Any] | None) -> None:
    """Fill in the names' defaults and the status that says it is served."""
    spec = crd["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = crd.setdefault("status", {})
    status["acceptedNames"] = names
    status["storedVersions"] = [v["name"] for v in spec["versions"] if v["storage"]]
    if not status.get("conditions"):
        status["conditions"] = [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            _condition("Established", "InitialNamesAccepted",
                       "the initial names have been accepted"),
        ]  # fmt: skip


def _condition(kind: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": now(), "reason": reason,
            "message": message}  # fmt: skip


def check_crd(crd: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return what the schema of CRDs cannot say, whether their own schemas compile included."""
    spec = crd["spec"]
    errors = []
    name = f"{spec['names']['plural']}.{spec['group']}"
    if crd["metadata"]["name"] != name:
        errors.append(
            _bad(
                ("metadata", "name"),
                crd["metadata"]["name"],
                'must be spec.names.plural+"."+spec.group',
            )
        )
    if spec["scope"] not in ("Cluster", "Namespaced"):
        errors.append(
            FieldError(
                ("spec", "scope"),
                "Unsupported value",
                'supported values: "Cluster", "Namespaced"',
                spec["scope"],
            )
        )
    if sum(v["storage"] for v in spec["versions"]) != 1:
        errors.append(
            _bad(
                ("spec", "versions"), ..., "must have exactly one version marked as storage version"
            )
        )
    if sum(v["served"] for v in spec["versions"]) > 1 or spec["conversion"]["strategy"] != "None":
        errors.append(
            _bad(
                ("spec", "versions"),
                ...,
                "this server converts between no versions: serve one only",
            )
        )
    if old is not None:
        errors += [
            _bad(("spec", *path), _dig(spec, path), "field is immutable")
            for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind"))
            if _dig(spec, path) != _dig(old["spec"], path)
        ]
    for i, version in enumerate(spec["versions"]):
        where = ("spec", "versions", i, "schema", "openAPIV3Schema")
        if "openAPIV3Schema" not in (version.get("schema") or {}):
            errors.append(FieldError(where, "Required value", "schemas are required"))
            continue
        try:
            custom_resource(crd, version, Collection(lambda _obj: {}, 1, 0))
        except SchemaError as e:
            # With one version kube-apiserver keeps the schema, and errors in it, elsewhere.
            single = len(spec["versions"]) == 1
            root = ("spec", "validation", "openAPIV3Schema") if single else where
            errors += [replace(p, path=(*root, *p.path)) for p in e.problems]
        except ValueError as e:
            errors.append(_bad((*where[:3], "additionalPrinterColumns"), ..., str(e)))
    return errors


def _dig(spec: dict[str, Any], path: tuple[str, ...]) -> Any:
    for part in path:
        spec = spec[part]
    return spec


def _bad(path: tuple[str | int, ...], value: Any, detail: str) -> FieldError:
    return FieldError(path, "Invalid value", detail, value)


def served_resources(crd: dict[str, Any], collection: Collection) -> list[Resource]:
    """Return the resources that a stored CRD adds."""
    return [custom_resource(crd, v, collection) for v in crd["spec"]["versions"] if v["served"]]
