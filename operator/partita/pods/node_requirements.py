"""Requirements of Pods on nodes, computed once for all jobs with the same template.

What is computed is kept as long as a template or a Pod that it is of: users write templates of up
to a megabyte, and those of deleted jobs must not fill the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

from partita.models.template import PackedTemplate
from partita.pods.job_pod import gpu_containers, is_gpu_resource
from partita.pods.node_rules import NodeRules
from partita.pods.requests import NOTHING, Requests, effective_requests, requests_of
from partita.pods.template_check import template_problems
from partita.pods.user_namespaces import host_namespaces, may_be_root

__all__ = ["Needs", "needs_of", "read_needs"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Needs:
    """Requirements of a template in addition to GPU memory."""

    problems: tuple[str, ...] = ()
    """Errors in the template. If there are any, all other fields have their defaults."""
    slots: int = 0
    """Containers that use its GPUs at the same time."""
    requests: Requests = NOTHING
    """CPU, memory and ephemeral storage."""
    others: tuple[tuple[str, int], ...] = ()
    """Other resources, by name. GPU resources are left out, as in the job's Pod."""
    root: str = ""
    """Names of its containers that may run as root; empty if none may."""
    host_namespaces: str = ""
    """Its fields with which it cannot have a user namespace; empty if there are none."""
    rules: NodeRules = field(default_factory=NodeRules)
    """Rules for the nodes that it may run on."""


_of_templates = WeakKeyDictionary[PackedTemplate, Needs]()
_known = WeakKeyDictionary[Needs, ref[Needs]]()


def read_needs(template: PackedTemplate) -> Needs:
    """Return the requirements of a template."""
    if (needs := _of_templates.get(template)) is None:
        needs = _of_templates[template] = _read(template)
    return needs


def _read(template: PackedTemplate) -> Needs:
    unpacked = template.unpack()
    if problems := template_problems(unpacked):
        return Needs(tuple(map(str, problems)))
    return replace(needs_of(unpacked.spec), slots=gpu_containers(unpacked))


def needs_of(spec: Mapping[str, Any]) -> Needs:
    """Return the requirements of a valid spec of a Pod, without the devices of its GPUs."""
    amounts = effective_requests(spec)
    common = {"cpu", "memory", "ephemeral-storage"}
    return _shared(
        Needs(
            requests=requests_of(amounts),
            others=tuple(
                (name, value)
                for name, value in sorted(amounts.items())
                if value and name not in common and not is_gpu_resource(name)
            ),
            root=", ".join(may_be_root(spec)),
            host_namespaces=", ".join(host_namespaces(spec)),
            rules=NodeRules.read(spec),
        )
    )


def _shared(needs: Needs) -> Needs:
    """Return one object for all Pods with the same requirements, to save memory."""
    return _known.setdefault(needs, ref(needs))() or needs
