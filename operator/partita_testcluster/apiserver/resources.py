"""What the server serves: one `ServedResource` for each kind, built-in or from a CRD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from partita.validation.field_errors import FieldError
from partita.validation.schema import CRDValidator, Schema
from partita_testcluster.apiserver import errors
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.meta import dig
from partita_testcluster.apiserver.store import Collection, Extract, Record
from partita_testcluster.apiserver.tables import AGE, Column, compile_path

__all__ = ["ServedResource", "Target", "custom_resource", "extractor"]


_Obj = dict[str, Any]


@dataclass(eq=False, slots=True)
class ServedResource:
    """One kind as it is served in one version.

    Attributes
    ----------
    collection
        Its objects.
    subresources
        Such as ``status``, ``scale`` or ``binding``.
    selectable
        The fields it can be selected by, beside name and namespace.
    prepare
        Fills in what depends on other fields, before validation; gets the object and, on
        updates, the old one.
    check
        Returns violations the schema cannot express.
    generation
        ``metadata.generation`` is kept.
    unconditional
        An update without a resourceVersion is allowed.
    custom
        It comes from a CRD.
    scale
        The paths of replicas, if it has a scale subresource.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    schema: Schema
    collection: Collection
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    selectable: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (AGE,)
    prepare: Callable[[_Obj, _Obj | None], None] = lambda _obj, _old: None
    check: Callable[[_Obj, _Obj | None], list[FieldError]] = lambda _obj, _old: []
    generation: bool = False
    unconditional: bool = True
    custom: bool = False
    scale: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """Group and version as objects carry them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def fields(self) -> frozenset[str]:
        """All fields it can be selected by."""
        return frozenset({"metadata.name", "metadata.namespace", *self.selectable})


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a kind, or one object of it, or a subresource of that.

    Attributes
    ----------
    namespace
        `None` for all namespaces and for what is in none.
    """

    resource: ServedResource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def space(self) -> str:
        """The namespace as objects are kept under it."""
        return self.namespace or ""

    @property
    def record(self) -> Record | None:
        """The object's current version."""
        return self.resource.collection.get(self.space, self.name)

    def existing(self) -> Record:
        """Return the object's current version.

        Raises
        ------
        APIError
            404 where there is none.
        """
        if (record := self.record) is None:
            raise self.error("NotFound")
        return record

    def error(self, reason: str, *why: str, **details: Any) -> APIError:
        """Return an error about this object; see `errors.object_error`."""
        group, plural = self.resource.group, self.resource.plural
        return errors.object_error(reason, group, plural, self.name, *why, **details)

    def invalid(self, problems: list[FieldError]) -> APIError:
        """Return the 422 that lists what is wrong."""
        return errors.invalid(self.resource.group, self.resource.kind, self.name, problems)


def extractor(selectable: tuple[str, ...]) -> Extract:
    """Return a function that takes the selectable fields out of an object."""

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
    """Return the resource that one version of a CRD describes.

    Parameters
    ----------
    collection
        Returns the collection of its objects.

    Raises
    ------
    SchemaError
        Its schema cannot be used.
    ValueError
        A printer column's path cannot be read.
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
        schema=CRDValidator(version["schema"]["openAPIV3Schema"]).schema,
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
        custom=True,
        scale=subresources.get("scale") or {},
    )
