"""Types of the options that name GPU products and their speeds."""

from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

if TYPE_CHECKING:
    from partita_research.cli.workload import Asked

__all__ = ["GPUsOption", "SpeedOption"]


class GPUsOption(click.ParamType["Asked"]):
    """GPUs as `PRODUCT:COUNT` or `PRODUCT:COUNT:MEMORY`."""

    name = "gpus"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Asked":
        from partita_research.cli.workload import Asked
        from partita_research.simulator.products import PRODUCTS

        product, *rest = str(value).split(":")
        try:
            count, memory = int(rest[0]), _memory(rest[1]) if rest[1:] else 0
        except (IndexError, ValueError):
            count = memory = 0
        if not product or count < 1 or memory < 0 or rest[2:]:
            self.fail(f"{value!r}: write PRODUCT:COUNT, or PRODUCT:COUNT:MEMORY", param, ctx)
        if product.lower() not in PRODUCTS and not memory:
            self.fail(
                f"{product} is none of {', '.join(PRODUCTS)}: say how much memory it has, as in "
                f"{product}:{count}:24Gi",
                param,
                ctx,
            )
        return Asked(product, count, memory)


def _memory(quantity: str) -> int:
    from partita.models.quantities import parse_memory

    return parse_memory(quantity)


class SpeedOption(click.ParamType[tuple[str, float]]):
    """The speed of a product, as `PRODUCT=FACTOR`."""

    name = "speed"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        product, _, text = str(value).partition("=")
        try:
            speed = float(text)
        except ValueError:
            speed = 0.0
        if not product or not 0 < speed < float("inf"):
            self.fail(f"{value!r}: write PRODUCT=FACTOR, such as a100-40gb=2.5", param, ctx)
        return product, speed
