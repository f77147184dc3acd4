"""Why a job that was offered to the policy was not started."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from partita.constants import OTHERS_JOB
from partita.pods.requests import Requests
from partita.scheduling.node_fit import format_amount
from partita.scheduling.policy_runner import Answer
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.scheduling.reservations import fit_among
from partita_policies.capacity import CapacityShortage, FreeCapacity, FreeGPU
from partita_policies.forecast import slowdowns_together
from partita_policies.lasting import only_lasting
from partita_policies.types import GPU, Job, Node, Sharing

__all__ = ["WaitingReasons", "shape_of"]

_REASONS = {
    CapacityShortage.MEMORY: Reason.INSUFFICIENT_MEMORY,
    CapacityShortage.JOBS: Reason.TOO_MANY_JOBS,
    CapacityShortage.CLIENTS: Reason.TOO_MANY_CLIENTS,
    CapacityShortage.ALONE: Reason.GPU_NOT_IDLE,
    CapacityShortage.HOST: Reason.INSUFFICIENT_NODE,
    CapacityShortage.PRODUCT: Reason.OTHER_PRODUCT,
    CapacityShortage.NOT_ELIGIBLE: Reason.NODE_NOT_ELIGIBLE,
}
_NAMED = 3
"""Maximum number of nodes or jobs named in a message."""
_PREDICTED = 4
"""Maximum number of GPUs for which the slowdown of a job that waits is predicted."""
_PREDICTIONS = 100
"""Maximum number of such jobs in one cycle: a prediction takes about 0.1 ms."""


def shape_of(job: Job) -> tuple[object, ...]:
    """Return the properties that determine on which GPUs a job fits."""
    return (
        *(job.memory, job.context_memory, job.gpus, job.slots, job.clients),
        *(job.alone, job.alone_by_faults),
        *(job.cpu, job.host_memory, job.host_storage, job.nodes, job.products),
    )


@dataclass
class WaitingReasons:
    """Finds why the jobs of one partition wait after one cycle.

    Jobs of the same shape wait for the same reason, so each shape is examined once. What depends on
    a job's application and namespace is added to that: the predicted slowdown, and the names of
    the jobs for which it waits. Those of other namespaces are not named.

    Parameters
    ----------
    capacity
        Free capacity after the cycle.
    gpus
        The GPUs on which jobs can be placed, with the allocations after the cycle.
    nodes
        Resources of their nodes, including allocated ones.
    holds
        GPUs that are held for each job, by its UID.
    answer
        The answer of the policy that decided.
    wanted
        Number of GPUs in the partition's spec.
    totals
        Allocatable amounts of each node.
    order
        The jobs that wait, in queue order.
    sharing
        How jobs share a GPU.
    """

    capacity: FreeCapacity
    gpus: Sequence[GPU]
    holds: Mapping[str, Sequence[str]]
    answer: Answer
    partition: str
    wanted: int
    nodes: Sequence[Node] = ()
    totals: Mapping[str, Requests] = field(default_factory=dict)
    order: Sequence[Job] = ()
    sharing: Sharing = Sharing.MPS

    def __post_init__(self) -> None:
        self._held = {gpu for theirs in self.holds.values() for gpu in theirs}
        self.short: set[str] = set()
        """Nodes with too little free CPU, memory or ephemeral storage for one of the jobs."""
        self._known: dict[tuple[object, ...], WaitingReason] = {}
        self._causes: dict[tuple[object, ...], str] = {}
        self._predictions = 0

    def why(self, job: Job) -> WaitingReason:
        """Return why a job waits."""
        if job.id in self.holds:
            held = ", ".join(self.holds[job.id])
            return WaitingReason(Reason.GPU_HELD, f"{held} is held for it until enough is released")
        shape = shape_of(job)
        if shape not in self._known:
            self._known[shape] = self._of_shape(job)
        found = self._known[shape]
        if found.reason not in {Reason.POLICY_WAITS, Reason.GPU_HELD}:
            return found
        first = bool(self.order) and self.order[0].id == job.id
        kept_for = self.answer.rule.kept_for.get(job.id)
        key = (*shape, job.namespace, job.application, job.thread_percent, first, kept_for)
        if key not in self._causes:
            policy = found.reason is Reason.POLICY_WAITS
            self._causes[key] = self._cause(job, first=first) if policy else self._held_for(job)
        return replace(found, message=found.message + self._causes[key])

    def _cause(self, job: Job, *, first: bool) -> str:
        """Return why the policy does not start a job that fits, if that is known."""
        rule = self.answer.rule
        kept_for = rule.kept_for.get(job.id)
        for other in self.order if kept_for is not None else ():
            if other.id == kept_for:
                return f": it keeps the room for {self._named(job, other)}"
        if rule.in_order and self.order and not first:
            return f": {self._named(job, self.order[0])} is before it"
        if rule.reason or self._predictions >= _PREDICTIONS:
            return ""
        self._predictions += 1
        return self._prediction(job)

    def _prediction(self, job: Job) -> str:
        """Return the slowdowns that are predicted on the GPU on which they are least."""
        fitting = (
            gpu
            for gpu in self.gpus
            if gpu.running and self._refusal(job, gpu) is None and job.gpus == 1
        )
        found = []
        for gpu in sorted(fitting, key=lambda gpu: (len(gpu.running), gpu.id))[:_PREDICTED]:
            (own, measured), *others = slowdowns_together([job, *gpu.running], gpu, self.sharing)
            if measured:
                found.append((max(own, *(much for much, _ in others)), own, gpu))
        if not found:
            return ""
        most, own, gpu = min(found, key=lambda one: one[0])
        there = "the job" if len(gpu.running) == 1 else f"the {len(gpu.running)} jobs"
        text = f": beside {there} on {gpu.id} it is predicted to take {own:.2f} times as long as "
        text += "alone"
        if most > own:
            text += f", and {'that' if len(gpu.running) == 1 else 'one of them'} {most:.2f} times"
        budget = self.answer.rule.slowdown_budget
        if budget is None:
            return text
        over = "over" if most > budget else "with its uncertainty over"
        return f"{text}, which is {over} the policy's slowdown_budget of {budget:g}"

    def _held_for(self, job: Job) -> str:
        """Return for which jobs the GPUs are held on which a job would fit."""
        free = {gpu.id for gpu in self.gpus if self.capacity.why_not(job, gpu.id) is None}
        holders = {uid for uid, gpus in self.holds.items() if free.intersection(gpus)}
        named = (self._named(job, one) for one in self.order if one.id in holders)
        names = list(dict.fromkeys(named)) or ["other jobs"]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"the GPUs with room are held for {', '.join(names[:_NAMED])}{more} first"

    @staticmethod
    def _named(job: Job, other: Job) -> str:
        """Return the name of another job for the users of a job."""
        return other.name if other.namespace == job.namespace else OTHERS_JOB

    def _of_shape(self, job: Job) -> WaitingReason:
        if not self.gpus:
            return WaitingReason(
                Reason.NO_GPU_READY,
                f"none of the {self.wanted} GPUs of {self.partition} is ready: see "
                f"`kubectl get gpuservers` and `kubectl describe gpart {self.partition}`"
                if self.wanted
                else f"{self.partition} has no GPUs: raise spec.gpus",
            )
        found = [self._refusal(job, gpu) for gpu in self.gpus]
        refusals = Counter(found)
        for gpu, refusal in zip(self.gpus, found, strict=True):
            if refusal is CapacityShortage.HOST:
                self.short.add(gpu.node)
        if fit_among(job, self.capacity, [g for g in self.gpus if g.id not in self._held]):
            rule = self.answer.rule.reason or "does not start it yet"
            return WaitingReason(
                Reason.POLICY_WAITS, f"it would fit, but policy {self.answer.policy} {rule}"
            )
        if not job.lasting and (behind := self._behind_services(job)):
            return WaitingReason(Reason.BEHIND_SERVICES, behind)
        # Nodes on which the job cannot run at all are the least useful reason.
        told_last: dict[CapacityShortage | str | None, int] = {
            None: 2,
            CapacityShortage.NOT_ELIGIBLE: 1,
        }
        main = min(refusals.most_common(), key=lambda entry: told_last.get(entry[0], 0))[0]
        if main is None:
            return WaitingReason(
                Reason.INSUFFICIENT_MEMORY,
                f"needs {job.gpus} GPUs on one node at the same time; no node has as many idle",
            )
        if not isinstance(main, CapacityShortage):
            return WaitingReason(Reason.GPU_HELD, "")
        return WaitingReason(_REASONS[main], self._sentence(job, refusals, main))

    def _behind_services(self, job: Job) -> str:
        """Return a message if a job cannot start while the services run; empty if it can."""
        if not any(one.lasting for gpu in self.gpus for one in gpu.running):
            return ""
        at_end = FreeCapacity(map(only_lasting, self.gpus), self.nodes)
        idle = FreeCapacity([replace(gpu, running=()) for gpu in self.gpus], self.nodes)
        if fit_among(job, at_end, self.gpus) or not fit_among(job, idle, self.gpus):
            return ""
        free = [at_end[gpu.id] for gpu in self.gpus]
        needs, left = _beside(job, free, Counter(at_end.why_not(job, f.gpu.id) for f in free))
        return (
            f"needs {needs}; beside the services, which never end by themselves, jobs can have at "
            f"most {left}: request less, scale a service down, or use another partition"
        )

    def _refusal(self, job: Job, gpu: GPU) -> CapacityShortage | str | None:
        refusal = self.capacity.why_not(job, gpu.id)
        if refusal is None and gpu.id in self._held:
            return "held"
        return refusal

    def _sentence(
        self,
        job: Job,
        refusals: Counter[CapacityShortage | str | None],
        main: CapacityShortage | str,
    ) -> str:
        """Return a message about the requested, the free and the total amount."""
        count = f"{refusals[main]} of {len(self.gpus)} GPUs of {self.partition}"
        if main is CapacityShortage.MEMORY:
            lacking = [g for g in self.gpus if self._refusal(job, g) is CapacityShortage.MEMORY]
            most = max(lacking, key=lambda gpu: self.capacity[gpu.id].memory)
            free = max(0, self.capacity[most.id].memory)
            contexts = gib(job.context_memory) if job.context_memory else ""
            said = (
                f"needs {gib(job.memory)} of GPU memory"
                f"{f' ({contexts} of it for CUDA contexts)' if contexts else ''}; "
                f"the most that is free is {gib(free)} of {gib(most.memory)} on {most.id}"
            )
        elif main is CapacityShortage.JOBS:
            most_jobs = max(gpu.max_jobs for gpu in self.gpus)
            said = f"{count} have all their {most_jobs} places taken (sharing.maxJobsPerGPU)"
        elif main is CapacityShortage.CLIENTS:
            limit = max(gpu.max_clients for gpu in self.gpus)
            said = f"{count} have all their {limit} MPS clients taken; it needs {job.clients}"
        elif main is CapacityShortage.HOST:
            said = self._node_sentence(job, count)
        elif main is CapacityShortage.NOT_ELIGIBLE:
            names = sorted(job.nodes)
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            allowed = ", ".join(names[:_NAMED]) + more
            said = f"it can use only {allowed}, and no GPU there is ready"
        elif main is CapacityShortage.PRODUCT:
            said = f"needs {' or '.join(job.products)}; {count} are others"
        elif job.alone:
            many = f"{job.gpus} idle GPUs on one node" if job.gpus > 1 else "an idle GPU"
            why = ", because its GPU faulted too often beside other jobs"
            said = f"needs {many}{why if job.alone_by_faults else ''}; {count} are in use"
        else:
            said = f"{count} are each used by a job that must be alone"
        others = [
            f"{number} {_SHORT[kind]}"
            for kind, number in refusals.items()
            if kind is not None and kind != main
        ]
        return f"{said} (and {', '.join(others)})" if others else said

    def _node_sentence(self, job: Job, count: str) -> str:
        """Return a message about the scarcest node resource: the requested and the most free."""
        nodes = {g.node for g in self.gpus if self._refusal(job, g) is CapacityShortage.HOST}
        left = {name: Requests(*self._left(name)) for name in nodes}
        asked = Requests(job.cpu, job.host_memory, job.host_storage)._asdict()
        lacking = {
            resource: [name for name in nodes if amount > getattr(left[name], resource)]
            for resource, amount in asked.items()
            if amount
        }
        resource = max(lacking, key=lambda each: len(lacking[each]))
        most = max(sorted(lacking[resource]), key=lambda name: getattr(left[name], resource))
        free = getattr(left[most], resource)
        total = getattr(self.totals.get(most, left[most]), resource)
        needed = format_amount(resource, asked[resource])
        left_over = format_amount(resource, max(0, free), short=True)
        whole = format_amount(resource, total, short=True)
        return (
            f"needs {needed} of its node; the most that is free is {left_over} of {whole} "
            f"on {most}, and {count} are on such nodes"
        )

    def _left(self, node: str) -> tuple[int, int, int]:
        hosts = self.capacity.hosts
        return (hosts.left(node) if hosts is not None else None) or (0, 0, 0)


def _beside(
    job: Job, free: Sequence[FreeGPU], lacking: Counter[CapacityShortage | None]
) -> tuple[str, str]:
    """Return what a job needs of the resource that most GPUs lack, and the most that is free."""
    del lacking[None]
    match lacking.most_common(1)[0][0]:
        case CapacityShortage.HOST:
            return "CPU, memory or storage of a node", "what they leave of it"
        case CapacityShortage.JOBS:
            most = max(free, key=lambda one: one.slots)
            place = f"{most.slots} of {most.gpu.max_jobs}, on {most.gpu.id}"
            return f"{job.slots} places of a GPU", place
        case CapacityShortage.CLIENTS:
            most = max(free, key=lambda one: one.clients)
            return (
                f"{job.clients} MPS clients",
                f"{most.clients} of {most.gpu.max_clients}, on {most.gpu.id}",
            )
        case _:
            most = max(free, key=lambda one: one.memory)
            needs = "an idle GPU" if job.alone else f"{gib(job.memory)} of GPU memory"
            memory = f"{gib(max(0, most.memory))} of {gib(most.gpu.memory)}, on {most.gpu.id}"
            return needs, memory


_SHORT: dict[CapacityShortage | str, str] = {
    CapacityShortage.MEMORY: "lack memory",
    CapacityShortage.JOBS: "have no place left",
    CapacityShortage.CLIENTS: "have no MPS client left",
    CapacityShortage.ALONE: "are not to be shared now",
    CapacityShortage.HOST: "are on nodes without enough CPU, memory or ephemeral storage",
    CapacityShortage.PRODUCT: "are of another product",
    CapacityShortage.NOT_ELIGIBLE: "are on nodes that cannot run its Pod, or did not start it",
    "held": "are held for other jobs",
}
