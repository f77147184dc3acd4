"""Checks of a policy for its author, before an operator runs the policy.

from partita_policies import check_policy

def test_my_policy():
    check_policy(MyPolicy, {"window": 3})
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from pydantic import JsonValue

from partita_policies.capacity import CapacityShortage, FreeCapacity
from partita_policies.check_cases import cases, crowd, one_small_job
from partita_policies.registry import parse_parameters
from partita_policies.snapshot_json import dump_snapshot
from partita_policies.types import Placement, Policy, Snapshot

__all__ = ["CheckReport", "Complaint", "PolicyCheckError", "check_policy", "complaints_about"]

_REMEDY = {
    CapacityShortage.UNKNOWN: "name only ids of snapshot.gpus, as they are",
    CapacityShortage.COUNT: "name exactly job.gpus different GPUs",
    CapacityShortage.NODE: "choose all GPUs of a job on one node (FreeCapacity.first_fit does)",
    CapacityShortage.ALLOCATED: "leave out jobs that hold a GPU already",
    CapacityShortage.ALONE: "give a job with `alone` an empty GPU, and no neighbour",
    CapacityShortage.MEMORY: "count what is allocated and what this answer itself placed",
    CapacityShortage.JOBS: "count job.slots against gpu.max_jobs (FreeCapacity does)",
    CapacityShortage.CLIENTS: "count job.clients against gpu.max_clients (FreeCapacity does)",
    CapacityShortage.PRODUCT: "give a job with `products` only GPUs of one of them",
    CapacityShortage.NOT_ELIGIBLE: "give a job with `nodes` only GPUs on one of them",
    CapacityShortage.HOST: (
        "count job.cpu, job.host_memory and job.host_storage against snapshot.nodes "
        "(FreeCapacity does)"
    ),
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """One problem of a policy."""

    case: str
    """The test case with the problem."""
    problem: str
    remedy: str


class PolicyCheckError(AssertionError):
    """The policy failed the checks; the message lists all problems."""

    def __init__(self, policy: str, complaints: Sequence[Complaint]) -> None:
        self.complaints = tuple(complaints)
        lines = "".join(f"\n- {c.case}: {c.problem}; {c.remedy}" for c in complaints)
        super().__init__(f"{policy}: {len(complaints)} complaint(s){lines}")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Durations and placements of a policy that passed the checks."""

    seconds: Mapping[str, float]
    """Duration of the first decision of each case."""
    placements: Mapping[str, int]


def check_policy(
    policy: type[Policy] | Policy,
    parameters: Mapping[str, JsonValue] | None = None,
    *,
    jobs: int = 2000,
    gpus: int = 200,
    seconds: float = 10.0,
) -> CheckReport:
    """Run a policy on about twenty test cases and check every decision.

    The policy must keep the invariants of the operator's guard, return the same decision for the
    same snapshot (when called again, and in a fresh instance), not change the snapshot, place a
    job that fits an idle GPU, and decide on a long queue in time.

    Parameters
    ----------
    policy
        The class or an instance; with an instance no fresh one can be compared.
    parameters
        The value of `policy.parameters` in YAML; only with a class.
    jobs, gpus
        Size of the case with a long queue.
    seconds
        Bound on one decision; generous, because a test may run on a busy machine.

    Raises
    ------
    PolicyCheckError
        A check failed; it lists all problems, each with its remedy.
    PolicyParametersError
        The parameters do not match the policy's model.
    TypeError
        Parameters were given with an instance.
    """
    name, build = _builder(policy, parameters)
    first = build()
    snapshots = {
        "one job and an idle GPU": one_small_job(),
        **cases(),
        f"{jobs} jobs, {gpus} GPUs": crowd(jobs, gpus),
    }
    complaints: list[Complaint] = []
    durations: dict[str, float] = {}
    answers: dict[str, list[Placement]] = {}
    for case, snapshot in snapshots.items():
        before, start = dump_snapshot(snapshot), perf_counter()
        answer = _ask(first, case, snapshot, complaints)
        durations[case] = perf_counter() - start
        if dump_snapshot(snapshot) != before:
            remedy = "treat it as read-only; FreeCapacity keeps what changes"
            complaints.append(Complaint(case, "decide() changed the snapshot", remedy))
        elif answer is not None:
            answers[case] = answer
            complaints.extend(complaints_about(snapshot, answer, case))
    complaints.extend(_slow(durations, seconds))
    complaints.extend(_unlike(answers, snapshots, first, build))
    if answers.get("one job and an idle GPU") == []:
        remedy = "a job must not wait for ever where nothing else is left to wait for"
        problem = "the job is not placed"
        complaints.append(Complaint("one job and an idle GPU", problem, remedy))
    if complaints:
        raise PolicyCheckError(name, complaints)
    return CheckReport(durations, {case: len(answer) for case, answer in answers.items()})


def complaints_about(
    snapshot: Snapshot, placements: Sequence[Placement], case: str = "snapshot"
) -> Iterator[Complaint]:
    """Yield the problems of the placements for a snapshot; none if the guard would accept them."""
    jobs = {job.id: job for job in snapshot.jobs}
    capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
    placed: set[str] = set()
    for placement in placements:
        job = jobs.get(placement.job)
        if job is None:
            problem = f"it places {placement.job!r}, which does not wait"
            yield Complaint(case, problem, "place only ids of snapshot.jobs, as they are")
        elif job.id in placed:
            yield Complaint(case, f"it places {job.id!r} twice", "place each job at most once")
        elif refusal := capacity.why_not_together(job, placement.gpus):
            problem = f"{job.id!r} cannot have {', '.join(placement.gpus) or 'no GPU'} ({refusal})"
            yield Complaint(case, problem, _REMEDY[refusal])
        else:
            capacity.take(job, placement.gpus)
            placed.add(job.id)


def _builder(
    policy: type[Policy] | Policy, parameters: Mapping[str, JsonValue] | None
) -> tuple[str, Callable[[], Policy]]:
    if not inspect.isclass(policy):
        if parameters is not None:
            raise TypeError("parameters go with a policy's class; an instance has its own")
        return type(policy).__name__, lambda: policy
    checked = parse_parameters(policy.__name__, policy, parameters or {})
    return policy.__name__, lambda: policy(checked)


def _ask(
    policy: Policy, case: str, snapshot: Snapshot, complaints: list[Complaint]
) -> list[Placement] | None:
    """Return the placements, or None after adding a complaint if the policy returned none."""
    try:
        answer: object = policy.decide(snapshot)
    except Exception as error:  # noqa: BLE001 - any error is reported
        problem = f"decide() raised {type(error).__name__}: {error}"
        remedy = "return what can be placed, an empty list when nothing can"
        complaints.append(Complaint(case, problem, remedy))
        return None
    if isinstance(answer, Sequence) and all(_is_placement(item) for item in answer):
        return list(answer)
    problem = f"decide() returned {type(answer).__name__}, not a sequence of Placement"
    remedy = "return [Placement(job.id, (gpu.id, ...)), ...]: a list, and the GPUs as a tuple"
    complaints.append(Complaint(case, problem, remedy))
    return None


def _is_placement(item: object) -> bool:
    return isinstance(item, Placement) and isinstance(item.gpus, tuple)


def _slow(durations: Mapping[str, float], bound: float) -> Iterator[Complaint]:
    for case, took in durations.items():
        if took > bound:
            remedy = (
                "the operator falls back from a policy that overruns its budget; look at less, "
                "or give `seconds` a larger value where the machine is slow"
            )
            yield Complaint(case, f"decide() took {took:.2f} s, more than {bound:g} s", remedy)


def _unlike(
    answers: Mapping[str, list[Placement]],
    snapshots: Mapping[str, Snapshot],
    first: Policy,
    build: Callable[[], Policy],
) -> Iterator[Complaint]:
    """Run all cases again in another order, and yield complaints about different decisions."""
    ignored: list[Complaint] = []
    fresh = build()
    for case in reversed(tuple(answers)):
        if _ask(first, case, snapshots[case], ignored) != answers[case]:
            remedy = "keep no state between decisions, and seed randomness in each"
            yield Complaint(case, "the same snapshot got another answer when asked again", remedy)
        elif _ask(fresh, case, snapshots[case], ignored) != answers[case]:
            remedy = "let nothing but the parameters and the snapshot bear on the answer"
            yield Complaint(case, "a fresh instance answers otherwise", remedy)
