"""How often a failed job is started again, and how its memory is raised."""

from typing import Annotated

from pydantic import Field

from partita.models.base import Model

__all__ = ["NotStartedRetry", "OutOfMemoryRetry", "Retry"]


class OutOfMemoryRetry(Model):
    """More memory after the program ran out of GPU memory."""

    limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How often it is started again with more memory."""
    growth_percent: Annotated[int, Field(ge=1, le=1000)] = 50
    """Percent by which its memory is increased each time."""


class NotStartedRetry(Model):
    """Retries after no container of the Pod has started within podStartTimeout."""

    limit: Annotated[int, Field(ge=0, le=100)] = 5
    """How often the job is started again."""


class Retry(Model):
    """How often a failed job is started again."""

    limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How often the job is started again after a failure of the program. Attempts that end for
    other reasons (a GPU fault while other jobs share the GPU, a lost node, preemption, suspension,
    memory above gpuMemory that another job needed) do not count. A GPU fault while the job runs
    alone is a failure of the program."""
    out_of_memory: OutOfMemoryRetry = OutOfMemoryRetry.model_construct()
    """Retries after the program ran out of GPU memory."""
    not_started: NotStartedRetry = NotStartedRetry.model_construct()
    """Retries after no container of the Pod has started within podStartTimeout."""
