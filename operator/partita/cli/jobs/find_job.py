"""Finds the job that a person names, on the command line and in a shell's completion."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from partita.cli.terminal import UserError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from partita.kube.client import Kind, Kube

__all__ = ["complete_gpus", "complete_partitions", "find_job", "job_options", "namespace_option"]

F = TypeVar("F", bound=Callable[..., Any])

_PATIENCE: Final = 3.0
"""Seconds for which a shell's completion waits for the API server."""


def job_options(function: F) -> F:
    """Add JOB, as a name or NAMESPACE/NAME, and `--namespace`."""
    option = namespace_option("The job's namespace")
    return click.argument("job", shell_complete=_complete_jobs)(option(function))


def namespace_option(what: str) -> Callable[[F], F]:
    """Return what adds `--namespace`."""
    return click.option(
        "--namespace",
        "-n",
        metavar="NAME",
        shell_complete=_complete_names("NAMESPACES"),
        help=f"{what}; by default that of the kubeconfig's context.",
    )


async def find_job(
    kube: "Kube", job: str, namespace: str | None, kubeconfig: str | None
) -> dict[str, Any]:
    """Return the SharedGPUJob of that name.

    Parameters
    ----------
    job
        Its name, or `namespace/name` where no namespace is given.

    Raises
    ------
    UserError
        There is none; it says where one of that name is.
    """
    from partita.kube.client import JOBS
    from partita.kube.errors import ForbiddenError, NotFoundError

    if "/" in job and namespace is None:
        namespace, _, job = job.partition("/")
    namespace = namespace or current_namespace(kubeconfig)
    try:
        return await kube.get(JOBS, job, namespace)
    except NotFoundError:
        pass
    try:
        jobs, _ = await kube.list(JOBS)
    except ForbiddenError:
        jobs = []
    elsewhere = [j["metadata"]["namespace"] for j in jobs if j["metadata"]["name"] == job]
    advice = (
        f"it is in {', '.join(sorted(elsewhere))}: write -n {min(elsewhere)}"
        if elsewhere
        else "see `kubectl get sharedgpujobs --all-namespaces`"
    )
    raise UserError(f"there is no SharedGPUJob {job} in namespace {namespace}; {advice}")


def current_namespace(kubeconfig: str | None) -> str:
    """Return the namespace of the kubeconfig's context."""
    from kubernetes.aio.config import list_kube_config_contexts

    from partita.kube.connect import in_cluster

    if kubeconfig is None and in_cluster():
        return "default"
    _, current = list_kube_config_contexts(  # type: ignore[no-untyped-call]
        config_file=kubeconfig
    )
    return str(current["context"].get("namespace") or "default")


def _complete_jobs(
    ctx: click.Context, _param: click.Parameter, begun: str
) -> "list[CompletionItem]":
    from partita.kube.client import JOBS

    namespace = ctx.params.get("namespace")

    def name(meta: dict[str, Any]) -> str:
        return str(meta["name"]) if namespace else f"{meta['namespace']}/{meta['name']}"

    return _complete(ctx, JOBS, begun, namespace or "", name)


def _complete_names(
    kind: Literal["NAMESPACES", "PARTITIONS", "SERVERS"],
) -> "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]":
    """Return what offers the names of a kind; it is imported when a shell asks."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> "list[CompletionItem]":
        from partita.kube import client

        return _complete(ctx, getattr(client, kind), begun)

    return complete


complete_gpus = _complete_names("SERVERS")
complete_partitions = _complete_names("PARTITIONS")


def _complete(
    ctx: click.Context,
    kind: "Kind",
    begun: str,
    namespace: str = "",
    name: Callable[[dict[str, Any]], str] = lambda meta: str(meta["name"]),
) -> "list[CompletionItem]":
    """Offer what the cluster has; where it does not answer, nothing, and no noise."""
    from click.shell_completion import CompletionItem

    from partita.cli.connection import open_cluster

    async def names() -> list[str]:
        async with asyncio.timeout(_PATIENCE), open_cluster(ctx.params.get("kubeconfig")) as kube:
            items, _ = await kube.list(kind, namespace=namespace)
            return sorted(name(item["metadata"]) for item in items)

    try:
        found = asyncio.run(names())
    except (UserError, TimeoutError):
        return []
    return [CompletionItem(one) for one in found if one.startswith(begun)]
