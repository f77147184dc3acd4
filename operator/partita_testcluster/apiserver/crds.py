"""CustomResourceDefinitions: their defaults and rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partita.validation.field_errors import FieldError, Path
from partita.validation.schema import SchemaError
from partita_testcluster.apiserver.meta import dig, now
from partita_testcluster.apiserver.resources import custom_resource
from partita_testcluster.apiserver.store import Collection

__all__ = ["check_crd", "prepare_crd"]

_IMMUTABLE = ("group", "scope", "names.plural", "names.kind")


def prepare_crd(crd: dict[str, Any], _old: dict[str, Any] | None) -> None:
    """Fill in the names' defaults and the status that says it is served."""
    spec, names = crd["spec"], crd["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = crd.setdefault("status", {})
    status["acceptedNames"] = names
    status["storedVersions"] = [v["name"] for v in spec["versions"] if v["storage"]]
    if not status.get("conditions"):
        reasons = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
        said = {"status": "True", "lastTransitionTime": now(), "message": "names were accepted"}
        status["conditions"] = [{"type": t, "reason": r} | said for t, r in reasons.items()]


def check_crd(crd: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return what the schema of CRDs cannot say, whether their own schemas compile included."""
    spec, name = crd["spec"], crd["metadata"]["name"]
    versions = spec["versions"]
    errors = []
    if name != f"{spec['names']['plural']}.{spec['group']}":
        detail = 'must be spec.names.plural+"."+spec.group'
        errors.append(_bad(("metadata", "name"), detail, name))
    if spec["scope"] not in ("Cluster", "Namespaced"):
        detail = 'supported values: "Cluster", "Namespaced"'
        errors.append(FieldError(("spec", "scope"), "Unsupported value", detail, spec["scope"]))
    if sum(v["storage"] for v in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        errors.append(_bad(("spec", "versions"), detail))
    if sum(v["served"] for v in versions) > 1 or spec["conversion"]["strategy"] != "None":
        detail = "this server converts between no versions: serve one only"
        errors.append(_bad(("spec", "versions"), detail))
    for path in _IMMUTABLE:
        if old is not None and dig(spec, path) != dig(old["spec"], path):
            where = ("spec", *path.split("."))
            errors.append(_bad(where, "field is immutable", dig(spec, path)))
    for i, version in enumerate(versions):
        place = ("spec", "versions", i, "schema", "openAPIV3Schema")
        if "openAPIV3Schema" not in version.get("schema", {}):
            errors.append(FieldError(place, "Required value", "schemas are required"))
            continue
        try:
            custom_resource(crd, version, lambda extract: Collection(extract, 1, 0))
        except SchemaError as e:
            # With one version kube-apiserver keeps the schema, and errors in it, elsewhere.
            root = place if len(versions) > 1 else ("spec", "validation", "openAPIV3Schema")
            errors += [replace(p, path=(*root, *p.path)) for p in e.problems]
        except ValueError as e:
            errors.append(_bad((*place[:3], "additionalPrinterColumns"), str(e)))
    return errors


def _bad(path: Path, detail: str, value: Any = ...) -> FieldError:
    return FieldError(path, "Invalid value", detail, value)
