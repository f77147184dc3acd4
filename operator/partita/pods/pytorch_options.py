"""PyTorch's memory limit, which is one of the options in a variable that users set as well."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = [
    "ALLOCATOR",
    "OLD_ALLOCATOR",
    "PYTORCH_FRACTION",
    "allocator_variables",
    "decimal",
    "limit_allocator",
    "literal",
]

ALLOCATOR: Final = "PYTORCH_ALLOC_CONF"
OLD_ALLOCATOR: Final = "PYTORCH_CUDA_ALLOC_CONF"
"""The name of PyTorch up to 2.9."""
PYTORCH_FRACTION: Final = "per_process_memory_fraction"
"""Key in PyTorch's allocator options: share of the total memory, above 0 and at most 1.
https://docs.pytorch.org/docs/stable/notes/cuda.html, "Optimizing memory usage with
PYTORCH_ALLOC_CONF"; added by https://github.com/pytorch/pytorch/pull/161035."""


def allocator_variables(new: str | None, old: str | None, fraction: float) -> dict[str, str]:
    """Return the variables that limit PyTorch's allocator.

    PyTorch after 2.9 supports the fraction, and reads PYTORCH_CUDA_ALLOC_CONF before
    PYTORCH_ALLOC_CONF (c10/cuda/CUDAAllocatorConfig.h). PyTorch up to 2.9 stops the program at an
    unknown key ("Unrecognized CachingAllocator option",
    https://github.com/pytorch/pytorch/issues/123505), but ignores PYTORCH_ALLOC_CONF
    (https://github.com/pytorch/pytorch/issues/183387). So PYTORCH_ALLOC_CONF always gets the
    fraction. PYTORCH_CUDA_ALLOC_CONF gets it only if the user's value already contains it.

    Parameters
    ----------
    new, old
        The user's values of PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF; None if unset.
    fraction
        Share of the total memory that CUDA reports.
    """
    variables = {ALLOCATOR: limit_allocator(new or old or "", fraction)}
    if old and PYTORCH_FRACTION in old:
        variables[OLD_ALLOCATOR] = limit_allocator(old, fraction)
    return variables


def literal(users: Iterable[Mapping[str, Any]], name: str) -> str | None:
    """Return the user's value of a variable. The last entry counts, as in Kubernetes."""
    return next((e.get("value") for e in reversed([*users]) if e["name"] == name), None)


def limit_allocator(options: str, fraction: float) -> str:
    """Add the memory fraction to PyTorch's allocator options and keep the other options.

    Parameters
    ----------
    options
        Options of the user: `key:value` pairs separated by commas. A value may be a list in
        brackets that also contains commas.
    fraction
        Share of the total memory that CUDA reports.
    """
    kept = [
        option
        for option in _split(options)
        if option and option.partition(":")[0].strip() != PYTORCH_FRACTION
    ]
    return ",".join([*kept, f"{PYTORCH_FRACTION}:{decimal(fraction)}"])


def _split(options: str) -> list[str]:
    if options.count("[") != options.count("]"):
        # PyTorch rejects such options. An unclosed bracket must not include the added option.
        return [part.strip() for part in options.split(",")]
    parts, depth = [""], 0
    for character in options:
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def decimal(fraction: float) -> str:
    """Return a fraction as a decimal number without an exponent."""
    return f"{fraction:.6f}".rstrip("0").rstrip(".")
