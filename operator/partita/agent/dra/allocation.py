"""The allocation of a claim, as Partita's operator has written it to the claim."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from partita.agent.errors import PrepareError
from partita.constants import DEVICE, DRIVER
from partita.models.errors import describe
from partita.models.slice_parameters import SliceParameters

__all__ = ["allocated_devices", "claim_slices"]

Body = Mapping[str, Any]


def allocated_devices(claim: Body) -> dict[str, Body]:
    """Return the devices of Partita that are allocated to a claim, by GPUServer.

    Raises
    ------
    PrepareError
        It has none, or others than one on each of some GPUs.
    """
    results = list(_of_driver(_devices(claim).get("results")))
    found = {str(one.get("pool")): one for one in results if one.get("device") == DEVICE}
    if not found or len(found) < len(results):
        raise PrepareError(
            f"its allocation has {len(results)} devices of {DRIVER}: a claim has one on each of "
            f"its GPUs, named {DEVICE}, which Partita's operator allocates"
        )
    return found


def claim_slices(claim: Body) -> tuple[SliceParameters, ...]:
    """Return what a claim gets of each of its GPUs, by its allocation.

    Raises
    ------
    PrepareError
        It does not say that for each GPU, or what it says is invalid.
    """
    devices = allocated_devices(claim)
    opaque = [entry.get("opaque") or {} for entry in _devices(claim).get("config") or ()]
    found = [entry.get("parameters") for entry in _of_driver(opaque)]
    try:
        slices = tuple(map(SliceParameters.model_validate, found))
    except ValidationError as error:
        raise PrepareError(
            f"the parameters in its allocation are invalid: {describe(error)}"
        ) from error
    if [one.gpu_server for one in slices] != list(devices):
        raise PrepareError(
            f"its allocation has {len(found)} parameters of {DRIVER} instead of those of its "
            f"{len(devices)} devices, which Partita's operator writes"
        )
    return slices


def _devices(claim: Body) -> Body:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return allocation.get("devices") or {}


def _of_driver(entries: Any) -> Iterator[Body]:
    return (entry for entry in entries or () if entry.get("driver") == DRIVER)
