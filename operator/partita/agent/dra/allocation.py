"""The allocation of a claim, as Partita's operator has written it to the claim."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from partita.agent.errors import PrepareError
from partita.constants import DEVICE, DRIVER
from partita.models.errors import describe
from partita.models.slice_parameters import SliceParameters

__all__ = ["allocated_device", "slice_parameters"]

Body = Mapping[str, Any]


def allocated_device(claim: Body) -> Body:
    """Return the device of Partita that is allocated to a claim.

    Raises
    ------
    PrepareError
        It has none, or several.
    """
    results = list(_of_driver(_devices(claim).get("results")))
    if len(results) != 1 or results[0].get("device") != DEVICE:
        raise PrepareError(
            f"its allocation has {len(results)} devices of {DRIVER}: a claim has one, named "
            f"{DEVICE}, which Partita's operator allocates"
        )
    return results[0]


def slice_parameters(claim: Body) -> SliceParameters:
    """Return the parameters of Partita in the allocation of a claim.

    Raises
    ------
    PrepareError
        It has none, or they are invalid.
    """
    opaque = [entry.get("opaque") or {} for entry in _devices(claim).get("config") or ()]
    found = [entry.get("parameters") for entry in _of_driver(opaque)]
    try:
        (parameters,) = found
        return SliceParameters.model_validate(parameters)
    except ValidationError as error:
        raise PrepareError(
            f"the parameters in its allocation are invalid: {describe(error)}"
        ) from error
    except ValueError:
        raise PrepareError(
            f"its allocation has {len(found)} parameters of {DRIVER} instead of one, which "
            "Partita's operator writes"
        ) from None


def _devices(claim: Body) -> Body:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return allocation.get("devices") or {}


def _of_driver(entries: Any) -> Iterator[Body]:
    return (entry for entry in entries or () if entry.get("driver") == DRIVER)
