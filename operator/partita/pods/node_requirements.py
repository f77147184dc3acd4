"""What a job's template requires of a node, computed once for all jobs of one template."""

from dataclasses import dataclass, field
from functools import lru_cache

from partita.models.template import PackedTemplate
from partita.pods.job_pod import device_slots, is_gpu_resource
from partita.pods.node_rules import NodeRules
from partita.pods.requests import NOTHING, Requests, effective_requests, requests_of
from partita.pods.template_check import template_problems

__all__ = ["Needs", "read_needs"]

_REMEMBERED = 1024
"""Templates whose needs are kept: most jobs are submitted with one of a few."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a template asks for beside GPU memory."""

    problems: tuple[str, ...] = ()
    """What is wrong with the template; then nothing else is known of it."""
    slots: int = 0
    """Devices of each GPU."""
    requests: Requests = NOTHING
    """CPU, memory and ephemeral storage."""
    others: tuple[tuple[str, int], ...] = ()
    """Other resources, by name; without those that mean GPUs, as in the job's Pod."""
    rules: NodeRules = field(default_factory=NodeRules)
    """The nodes that it may run on."""


@lru_cache(maxsize=_REMEMBERED)
def read_needs(template: PackedTemplate) -> Needs:
    """Read what a template asks for."""
    unpacked = template.unpack()
    if problems := template_problems(unpacked):
        return Needs(problems)
    amounts = effective_requests(unpacked.spec)
    common = {"cpu", "memory", "ephemeral-storage"}
    return Needs(
        slots=device_slots(unpacked),
        requests=requests_of(amounts),
        others=tuple(
            (name, value)
            for name, value in sorted(amounts.items())
            if value and name not in common and not is_gpu_resource(name)
        ),
        rules=NodeRules.read(unpacked.spec),
    )
