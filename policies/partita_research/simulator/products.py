"""GPU products by name, for simulations.

Memory, SMs and PCIe (both directions together) are NVIDIA's, from the data sheet of each product
and, for SMs, the white paper of its architecture. All of the memory is allocatable; the caller
subtracts what a partition keeps in reserve.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from partita_policies.types import GPU

__all__ = ["MAX_JOBS", "PRODUCTS", "Product", "gpus_of"]

MAX_JOBS = 16
"""Jobs that may share a GPU of which nothing else is said: an assumption."""
_PCIE_3, _PCIE_4, _PCIE_5 = 32_000_000_000, 64_000_000_000, 128_000_000_000
"""Sixteen lanes, bytes per second: 8, 16 and 32 GT/s a lane."""


class Product(NamedTuple):
    """Figures of a GPU product."""

    memory: int
    """Bytes."""
    sm_count: int
    pcie_bandwidth: int
    """Bytes per second."""


def _gib(memory: int, sm_count: int, pcie_bandwidth: int) -> Product:
    return Product(memory << 30, sm_count, pcie_bandwidth)


PRODUCTS: Mapping[str, Product] = MappingProxyType(
    {
        "titan-xp": _gib(12, 30, _PCIE_3),
        "p100": _gib(16, 56, _PCIE_3),
        "v100-16gb": _gib(16, 80, _PCIE_3),
        "v100-32gb": _gib(32, 80, _PCIE_3),
        "t4": _gib(16, 40, _PCIE_3),
        "a10": _gib(24, 72, _PCIE_4),
        "a30": _gib(24, 56, _PCIE_4),
        "a100-40gb": _gib(40, 108, _PCIE_4),
        "a100-80gb": _gib(80, 108, _PCIE_4),
        "l4": _gib(24, 58, _PCIE_4),
        "l40s": _gib(48, 142, _PCIE_4),
        "h100-80gb": _gib(80, 132, _PCIE_5),
        "h200": _gib(141, 132, _PCIE_5),
    }
)


def gpus_of(
    product: str, count: int, *, max_jobs: int, per_node: int, memory: int = 0
) -> list[GPU]:
    """Return a number of GPUs of a product.

    Parameters
    ----------
    max_jobs
        Jobs that may share one GPU.
    per_node
        GPUs of each node. All GPUs of a job are on one node.
    memory
        Bytes of each GPU; 0 for the memory of the product.

    Raises
    ------
    ValueError
        The product is unknown and no memory is given.
    """
    known = PRODUCTS.get(product.lower(), Product(memory, 0, 0))
    if not known.memory:
        names = ", ".join(PRODUCTS)
        raise ValueError(f"{product}: expected one of {names}, or any name with its memory")
    return [
        GPU(
            id=f"gpu-{number}",
            node=f"{product}-node-{number // per_node}",
            memory=memory or known.memory,
            max_jobs=max_jobs,
            product=product,
            sm_count=known.sm_count,
            pcie_bandwidth=known.pcie_bandwidth,
        )
        for number in range(count)
    ]
