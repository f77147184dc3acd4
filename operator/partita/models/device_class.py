"""Names of device classes: one for each partition, and one for each of its fixed slices."""

from collections.abc import Container
from typing import Any, NamedTuple

from partita.constants import DRIVER

__all__ = ["ClassTarget", "class_target", "device_class_of", "names_device_class"]

_SUFFIX = f".{DRIVER}"


class ClassTarget(NamedTuple):
    """What a device class stands for."""

    partition: str
    slice: str
    """Name of a fixed slice; empty for any share of a GPU."""


def device_class_of(partition: str, slice_name: str = "") -> str:
    """Return the name of the device class of a partition, or of one of its fixed slices."""
    return f"{slice_name}.{partition}{_SUFFIX}" if slice_name else f"{partition}{_SUFFIX}"


def class_target(name: str, partitions: Container[str] = ()) -> ClassTarget | None:
    """Return what a device class stands for; None if it is not one of Partita's.

    Parameters
    ----------
    partitions
        The existing partitions. The name of a partition may contain dots, that of a slice may not.
        So `a.b.gpu.partita.dev` is the class of partition `a.b` if that exists, and otherwise that
        of slice `a` of partition `b`.
    """
    if not name.endswith(_SUFFIX):
        return None
    whole = name.removesuffix(_SUFFIX)
    first, dot, rest = whole.partition(".")
    if not dot or whole in partitions:
        return ClassTarget(whole, "")
    return ClassTarget(rest, first)


def names_device_class(value: Any) -> bool:
    """Return whether a part of an object, at any depth, is the name of a class of Partita."""
    if isinstance(value, dict):
        return any(map(names_device_class, value.values()))
    if isinstance(value, list):
        return any(map(names_device_class, value))
    return isinstance(value, str) and value.endswith(_SUFFIX)
