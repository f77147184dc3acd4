"""The served kinds: one `ServedResource` for each kind, built-in or from a CRD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from partita.validation.field_errors import FieldError
from partita.validation.kinds import KindRules
from partita.validation.schema import compile_schema
from partita_testcluster.apiserver import errors
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.meta import dig
from partita_testcluster.apiserver.store import Collection, Extract, Record
from partita_testcluster.apiserver.tables import AGE, Column, compile_path

__all__ = ["ServedResource", "Target", "custom_resource", "extractor"]


@dataclass(eq=False, slots=True)
class ServedResource:
    """One served version of a kind.

    Attributes
    ----------
    rules
        How its objects are completed and judged.
    collection
        Its objects.
    subresources
        Names such as ``status``, ``scale`` or ``binding``.
    selectable
        Fields for field selectors in addition to name and namespace.
    generation
        Whether ``metadata.generation`` is maintained.
    unconditional
        Whether an update without a resourceVersion is allowed.
    scale
        Paths of the replicas, if it has a scale subresource.
    """

    group: str
    version: str
    plural: str
    kind: str
    rules: KindRules
    collection: Collection
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    selectable: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (AGE,)
    generation: bool = False
    unconditional: bool = True
    scale: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """Group and version as in the objects' ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def fields(self) -> frozenset[str]:
        """All fields for field selectors."""
        return frozenset({"metadata.name", "metadata.namespace", *self.selectable})


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path: a kind, an object, or a subresource of an object.

    Attributes
    ----------
    namespace
        `None` for all namespaces and for cluster-scoped objects.
    """

    resource: ServedResource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def space(self) -> str:
        """The namespace as key of the collection; empty for cluster-scoped objects."""
        return self.namespace or ""

    @property
    def record(self) -> Record | None:
        """The object's current version, or `None` if it does not exist."""
        return self.resource.collection.get(self.space, self.name)

    def existing(self) -> Record:
        """Return the object's current version.

        Raises
        ------
        APIError
            404 if it does not exist.
        """
        if (record := self.record) is None:
            raise self.error("NotFound")
        return record

    def error(self, reason: str, *why: str, **details: Any) -> APIError:
        """Return an error about this object; see `errors.object_error`."""
        group, plural = self.resource.group, self.resource.plural
        return errors.object_error(reason, group, plural, self.name, *why, **details)

    def invalid(self, problems: list[FieldError]) -> APIError:
        """Return a 422 error that lists the violations."""
        return errors.invalid(self.resource.group, self.resource.kind, self.name, problems)


def extractor(selectable: tuple[str, ...]) -> Extract:
    """Return a function that returns the selectable fields of an object."""

    def extract(obj: dict[str, Any]) -> dict[str, str]:
        found = ((name, dig(obj, name)) for name in selectable)
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in found
            if value is not None
        }

    return extract


def custom_resource(
    crd: Mapping[str, Any], version: Mapping[str, Any], collection: Callable[[Extract], Collection]
) -> ServedResource:
    """Return the resource that one version of a CRD defines.

    Parameters
    ----------
    collection
        Returns the collection of its objects.

    Raises
    ------
    SchemaError
        If its schema is invalid.
    ValueError
        If the path of a printer column cannot be parsed.
    """
    spec, names = crd["spec"], crd["spec"]["names"]
    subresources = version.get("subresources") or {}
    columns = tuple(
        Column(c["name"], c["type"], compile_path(c["jsonPath"]), c.get("priority", 0))
        for c in version.get("additionalPrinterColumns", ())
    )
    fields = version.get("selectableFields", ())
    selectable = tuple(f["jsonPath"].removeprefix(".") for f in fields)
    return ServedResource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        rules=KindRules(compile_schema(version["schema"]["openAPIV3Schema"])),
        collection=collection(extractor(selectable)),
        singular=names["singular"],
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        subresources=frozenset(subresources),
        selectable=selectable,
        columns=columns or (AGE,),
        generation=True,
        unconditional=False,
        scale=subresources.get("scale") or {},
    )
