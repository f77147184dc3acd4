"""The type of options that name GPU products."""

from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

if TYPE_CHECKING:
    from partita_policies.types import GPU

__all__ = ["GPUOption"]

_MAX_JOBS = 16
"""Jobs that may share a GPU that is named by an option: an assumption."""
_PER_NODE = 8


class GPUOption(click.ParamType["list[GPU]"]):
    """GPUs of a product: `PRODUCT:COUNT` or `NAME:COUNT:MEMORY`, or one without its count."""

    name = "gpu"

    def __init__(self, *, counted: bool) -> None:
        self._counted = counted
        self._form = "PRODUCT:COUNT" if counted else "PRODUCT"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "list[GPU]":
        from partita.models.quantities import parse_memory
        from partita_research.simulator.products import gpus_of

        product, *rest = str(value).split(":")
        try:
            count = int(rest.pop(0)) if self._counted else 1
            memory = parse_memory(rest.pop(0)) if rest else 0
        except (IndexError, ValueError):
            count = memory = 0
        if not product or count < 1 or memory < 0 or rest:
            example = f"mine:{'2:' if self._counted else ''}24Gi"
            self.fail(f"{value!r}: write {self._form}, or with its memory {example}", param, ctx)
        try:
            return gpus_of(product, count, max_jobs=_MAX_JOBS, per_node=_PER_NODE, memory=memory)
        except ValueError as error:
            self.fail(f"{error}, as in {value}:24Gi", param, ctx)
