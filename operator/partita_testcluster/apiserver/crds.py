"""CustomResourceDefinitions: their defaults and rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partita.validation.field_errors import FieldError, Path
from partita.validation.schema import SchemaError
from partita_testcluster.apiserver.meta import now
from partita_testcluster.apiserver.resources import custom_resource
from partita_testcluster.apiserver.store import Collection

__all__ = ["check_crd", "prepare_crd"]


def prepare_crd(crd: dict[str, Any], _old: dict[str, Any] | None) -> None:
    """Set the defaults of the names, and a status that reports the CRD as served."""
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


def check_crd(crd: dict[str, Any], _old: dict[str, Any] | None) -> list[FieldError]:
    """Return the reasons that this server cannot serve a CRD, mostly errors in schema and rules."""
    versions = crd["spec"]["versions"]
    errors = []
    if sum(v["served"] for v in versions) > 1:
        detail = "this server converts between no versions: serve one only"
        errors.append(_bad(("spec", "versions"), detail))
    for i, version in enumerate(versions):
        place = ("spec", "versions", i, "schema", "openAPIV3Schema")
        if "openAPIV3Schema" not in version.get("schema", {}):
            errors.append(FieldError(place, "Required value", "schemas are required"))
            continue
        try:
            custom_resource(crd, version, lambda extract: Collection(extract, 1, 0))
        except SchemaError as e:
            # With one version kube-apiserver stores the schema at, and reports, another path.
            root = place if len(versions) > 1 else ("spec", "validation", "openAPIV3Schema")
            errors += [replace(p, path=(*root, *p.path)) for p in e.problems]
        except ValueError as e:
            errors.append(_bad((*place[:3], "additionalPrinterColumns"), str(e)))
    return errors


def _bad(path: Path, detail: str) -> FieldError:
    return FieldError(path, "Invalid value", detail)
