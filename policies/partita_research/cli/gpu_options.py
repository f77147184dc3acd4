"""The type of options that name GPU products."""

from typing import TYPE_CHECKING

from partita.cli.options import ReadValue

if TYPE_CHECKING:
    from partita_policies.types import GPU

__all__ = ["gpus_option"]

_PER_NODE = 8


def gpus_option(*, counted: bool) -> ReadValue["list[GPU]"]:
    """Return the type of GPUs of a product, `PRODUCT:COUNT` or `NAME:COUNT:MEMORY`.

    Parameters
    ----------
    counted
        Whether the count is written; otherwise it is one GPU.
    """
    form = "PRODUCT:COUNT" if counted else "PRODUCT"

    def read(text: str) -> "list[GPU]":
        from partita.models.quantities import parse_memory
        from partita_research.simulator.products import MAX_JOBS, gpus_of

        product, *rest = text.split(":")
        try:
            count = int(rest.pop(0)) if counted else 1
            memory = parse_memory(rest.pop(0)) if rest else 0
        except (IndexError, ValueError):
            count = memory = 0
        if not product or count < 1 or memory < 0 or rest:
            example = f"mine:{'2:' if counted else ''}24Gi"
            raise ValueError(f"{text!r}: write {form}, or with its memory {example}")
        try:
            return gpus_of(product, count, max_jobs=MAX_JOBS, per_node=_PER_NODE, memory=memory)
        except ValueError as error:
            raise ValueError(f"{error}, as in {text}:24Gi") from error

    return ReadValue("gpu", read)
