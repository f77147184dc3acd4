"""`partita jobs` and `partita workloads`: what has or wants GPU memory, with state and reason."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import Cluster, cluster_options, namespace_option, output_option

if TYPE_CHECKING:
    from partita.kube.client import Kube

__all__ = ["Jobs", "Workloads", "jobs", "workloads"]


class ListedRequest(TypedDict):
    """What a job and a Pod in a list have in common."""

    namespace: str
    name: str
    application: str
    """Of a job, the name in its spec; of a Pod, kind and name of its controller."""
    partition: str
    phase: str
    reason: str
    """Why it waits or how it ended, as one word."""
    message: str
    queuePosition: int | None
    request: str
    """What it asks for, as a short text."""
    gpuMemory: int | None
    """Bytes that it asks for or has; null before they are known."""
    node: str
    """Empty without a slice."""
    age: float
    """Seconds since it was created."""
    estimatedStart: list[str | None] | None
    """The earliest and the latest time at which it is expected to start, the latter null if it is
    not known; null if nothing is said."""


class ListedJob(ListedRequest):
    """A SharedGPUJob; running jobs come first, then the queue, then finished jobs."""

    gpuMemoryLimit: int | None
    """Most bytes that it may use while other jobs do not need them."""
    gpus: int
    servers: list[str]
    """Its GPUServers; empty without a slice."""


class ListedWorkload(ListedRequest):
    """A Pod that has or wants a slice of a GPU by a claim."""

    lasting: bool
    """Whether it never ends by itself."""
    used: int | None
    """Bytes that it uses now; null if they are not measured."""
    idle: float | None
    """Seconds for which none of its kernels has run; null if one ran in the last minute."""
    server: str
    """Its GPUServer; empty without a slice."""
    claim: str


Jobs = list[ListedJob]
Workloads = list[ListedWorkload]

_STATE: Final = {
    "PARTITION": "partition",
    "PHASE": "phase",
    "POSITION": "queuePosition",
    "STARTS": "estimatedStart",
    "REQUEST": "request",
}
"""Keys of the columns, by their titles."""
_WHY: Final = {"AGE": "age", "REASON": "reason"}
_USE: Final = {"USED": "used", "IDLE": "idle"}
_JOBS: Final = {"NAME": "name", **_STATE, **_WHY}
_WIDE_JOBS: Final = {
    "NODE": "node",
    "GPUS": "servers",
    "APPLICATION": "application",
    "MESSAGE": "message",
}
_WORKLOADS: Final = {"NAME": "name", "OF": "application", **_STATE, **_USE, **_WHY}
_WIDE_WORKLOADS: Final = {"NODE": "node", "GPU": "server", "CLAIM": "claim", "MESSAGE": "message"}


def _options(what: str, shape: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of a list of `what`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        everywhere = click.option(
            "--all-namespaces", "-A", is_flag=True, help=f"List the {what} of all namespaces."
        )
        return namespace_option(everywhere(cluster_options(output_option(shape, "wide")(function))))

    return decorate


@click.command("jobs", short_help="List jobs with their state and reason.")
@_options("jobs", "partita.cli.jobs.lists:Jobs")
def jobs(**options: Any) -> None:
    """List SharedGPUJobs: running jobs first, then the queue, then finished jobs.

    The wide format adds the node, the GPUs, the application and the message of each job.

    \b
    Examples:
      partita jobs -n team-a
      partita jobs -A -o wide
      partita jobs -A -o json | jq '.[] | select(.phase == "Failed") | .name'
    """  # noqa: D301
    _print(_read_jobs, _JOBS, _WIDE_JOBS, "jobs", **options)


@click.command("workloads", short_help="List Pods with GPU slices, and those that wait.")
@_options("Pods", "partita.cli.jobs.lists:Workloads")
def workloads(**options: Any) -> None:
    """List the Pods that have or want a slice of a GPU by a ResourceClaim: running Pods first.

    Deployments, notebooks, Jobs and other controllers make these Pods. IDLE says for how long no
    kernel of a Pod has run. The wide format adds the node, the GPU, the claim and the message.

    \b
    Examples:
      partita workloads -n team-a
      partita workloads -A -o wide
      partita workloads -A -o json | jq '.[] | select(.phase == "Queued") | .name'
    """  # noqa: D301
    _print(
        _read_workloads, _WORKLOADS, _WIDE_WORKLOADS, "Pods with claims of GPU slices", **options
    )


def _print(
    read: "Callable[[Kube, str], Awaitable[Jobs | Workloads]]",
    columns: dict[str, str],
    wide: dict[str, str],
    what: str,
    *,
    namespace: str | None,
    all_namespaces: bool,
    cluster: Cluster,
    output: str,
) -> None:
    from partita.cli.run_until_stopped import run_until_stopped

    if all_namespaces and namespace is not None:
        raise click.UsageError("--all-namespaces and --namespace exclude each other: write one")

    async def rows() -> tuple[Jobs | Workloads, str]:
        from partita.cli.connection import open_cluster
        from partita.cli.jobs.find_job import check_namespace
        from partita.kube.connect import current_namespace

        async with open_cluster(*cluster) as kube:
            chosen = "" if all_namespaces else namespace or current_namespace(*cluster)
            found = await read(kube, chosen)
            if chosen and not found:
                await check_namespace(kube, chosen)
        return found, f"namespace {chosen}" if chosen else "any namespace"

    found, where = run_until_stopped(rows())
    if output in {"json", "yaml"}:
        terminal.dump(found, output)
    elif found:
        shown = {"NAMESPACE": "namespace"} if all_namespaces else {}
        shown |= columns | (wide if output == "wide" else {})
        cells = [_cells(row, shown) for row in found]
        terminal.columns([[*shown], *cells])
    else:
        terminal.say(f"There are no {what} in {where}.")


def _cells(row: Mapping[str, object], columns: dict[str, str]) -> list[str]:
    return [_cell(key, row[key]) for key in columns.values()]


def _cell(key: str, value: Any) -> str:
    from partita.cli.number_format import duration, starts_in
    from partita.models.quantities import gib, parse_time

    if value is None:
        return ""
    match key:
        case "age" | "idle":
            return duration(value)
        case "used":
            return gib(value)
        case "estimatedStart":
            earliest, latest = (time and parse_time(time) for time in value)
            return starts_in(earliest, latest, datetime.now(UTC))
        case "servers":
            return ", ".join(value)
        case _:
            return str(value)


async def _read_jobs(kube: "Kube", namespace: str) -> Jobs:
    from partita.cli.jobs.find_job import key_of
    from partita.kube.client import JOBS

    found, _ = await kube.list(JOBS, namespace=namespace)
    rows: Jobs = []
    for body in found:
        try:
            rows.append(_job_row(body))
        except ValueError as error:
            terminal.warn(
                f"SharedGPUJob {key_of(body)} cannot be read ({error}): correct it with "
                "`kubectl edit`"
            )
    return sorted(rows, key=_order)


def _job_row(body: dict[str, Any]) -> ListedJob:
    """Return the row of a job from its JSON: to import the model takes longer than the rest."""
    from partita.models.quantities import format_request, parse_memory, parse_time, seconds_since

    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    memory, limit = (
        parse_memory(spec[name]) if spec.get(name) is not None else None
        for name in ("gpuMemory", "gpuMemoryLimit")
    )
    place, gpus = status.get("assignment") or {}, spec.get("gpus", 1)
    starts = status.get("estimatedStart") or {}
    created = parse_time(meta["creationTimestamp"])
    return {
        "namespace": meta["namespace"],
        "name": meta["name"],
        "application": spec.get("application", ""),
        "partition": spec["partition"],
        "phase": status.get("phase", "Queued"),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "queuePosition": status.get("queuePosition"),
        "request": format_request(memory, spec.get("slice"), gpus, limit),
        "gpuMemory": memory,
        "node": place.get("node", ""),
        "age": round(seconds_since(created, datetime.now(UTC)), 3),
        "gpuMemoryLimit": limit,
        "gpus": gpus,
        "estimatedStart": _ends(starts),
        "servers": place.get("servers", []),
    }


def _ends(expected: dict[str, str]) -> list[str | None] | None:
    """Return both ends of an estimate."""
    return [expected["earliest"], expected.get("latest")] if "earliest" in expected else None


_PHASES = ("Running", "Assigned", "Queued", "Suspended", "Succeeded", "Failed")


def _order(row: ListedJob) -> tuple[int, str, bool, int, float, str]:
    position = row["queuePosition"]
    phase = _PHASES.index(row["phase"])
    return phase, row["partition"], position is None, position or 0, -row["age"], row["name"]


async def _read_workloads(kube: "Kube", namespace: str) -> Workloads:
    from partita.claims.workloads import all_workloads
    from partita.cli.cluster_state import list_visible, state_of
    from partita.kube.client import CLAIMS, PARTITIONS, PODS, SERVERS
    from partita.models.quantities import seconds_since

    lists = {kind: (await kube.list(kind, namespace=namespace))[0] for kind in (CLAIMS, PODS)}
    hidden = []
    for kind in (PARTITIONS, SERVERS):
        lists[kind], missing = await list_visible(kube, kind, namespace)
        hidden += [missing] if missing else []
    if hidden:
        terminal.warn(f"Use and idle time are not shown: you may not list {', '.join(hidden)}.")
    now = datetime.now(UTC)
    rows: Workloads = []
    for view in all_workloads(state_of(lists)):
        if namespace not in {"", view.namespace}:
            continue
        place = view.place
        idle = place.idle_since if place is not None else None
        rows.append(
            {
                "namespace": view.namespace,
                "name": view.name,
                "application": view.application,
                "partition": view.partition,
                "phase": str(view.phase),
                "reason": view.reason,
                "message": view.message,
                "queuePosition": view.position,
                "request": view.asks,
                "gpuMemory": view.memory,
                "node": place.node if place is not None else "",
                "age": round(seconds_since(view.created, now), 3),
                "estimatedStart": _ends(view.expected.dump()) if view.expected else None,
                "lasting": view.lasting,
                "used": place.used if place is not None else None,
                "idle": round(seconds_since(idle, now), 3) if idle is not None else None,
                "server": place.server if place is not None else "",
                "claim": view.claim,
            }
        )
    return rows
