"""What the DqnGPU study published, to set beside our own results (`data/study.yaml`)."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import TypeAdapter

__all__ = ["Published", "Study", "study"]

Kind = Literal["published", "derived"]


@dataclass(frozen=True, slots=True)
class Published:
    """A result of the study."""

    workload: str
    policy: str
    """The name of ours that it stands beside: `dqn` for the study's DqnGPU."""
    figure: Literal["makespan", "gpu", "memory", "normalised", "training", "unslowed"]
    """Seconds; percent of the GPU and of its memory; in terms of SJF's makespan; seconds; jobs."""
    value: float
    where: str
    """Where it is printed, or what it is derived from."""
    kind: Kind


@dataclass(frozen=True, slots=True)
class Study:
    """All of it."""

    source: str
    results: tuple[Published, ...]
    notes: tuple[str, ...]
    """Where it contradicts itself."""

    def result(self, workload: str, policy: str, figure: str) -> Published | None:
        """Return a figure, or None when the study does not give it."""
        for result in self.results:
            if (result.workload, result.policy, result.figure) == (workload, policy, figure):
                return result
        return None


@cache
def study() -> Study:
    """Return what the study published."""
    text = (files("partita_research") / "data" / "study.yaml").read_text(encoding="utf-8")
    return TypeAdapter(Study).validate_python(yaml.safe_load(text))
