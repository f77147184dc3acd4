"""Completes the names of a cluster's objects in a shell."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from partita.cli.terminal import UserError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from partita.kube.client import Kind

__all__ = ["complete_jobs", "complete_names", "complete_targets"]

_PATIENCE: Final = 3.0
"""Seconds for which a completion waits for the API server."""


def complete_jobs(
    ctx: click.Context, _param: click.Parameter, begun: str
) -> "list[CompletionItem]":
    """Return the jobs of the namespace, or the jobs of all namespaces as `NAMESPACE/NAME`."""
    from partita.kube.client import JOBS

    namespace = ctx.params.get("namespace")

    def name(meta: dict[str, Any]) -> str:
        return str(meta["name"]) if namespace else f"{meta['namespace']}/{meta['name']}"

    return _complete(ctx, JOBS, begun, namespace=namespace or "", name=name)


def complete_targets(
    ctx: click.Context, param: click.Parameter, begun: str
) -> "list[CompletionItem]":
    """Return jobs; if `pod/` or `claim/` is begun, also Pods with claims, or claims of slices."""
    from partita.cli.options import Cluster
    from partita.kube.client import CLAIMS, PODS
    from partita.kube.connect import KubeconfigError, current_namespace
    from partita.models.device_class import names_device_class

    found = complete_jobs(ctx, param, begun)
    for prefix, kind, keep in (("pod/", PODS, _has_claims), ("claim/", CLAIMS, names_device_class)):
        if not begun or not (begun.startswith(prefix) or prefix.startswith(begun)):
            continue
        cluster = Cluster(ctx.params.get("kubeconfig"), ctx.params.get("context"))
        try:
            namespace = ctx.params.get("namespace") or current_namespace(*cluster)
        except KubeconfigError:
            return found
        name = partial("{0}{1[name]}".format, prefix)
        found += _complete(ctx, kind, begun, namespace=namespace, name=name, keep=keep)
    return found


def _has_claims(pod: dict[str, Any]) -> bool:
    return bool((pod.get("spec") or {}).get("resourceClaims"))


def complete_names(
    kind: Literal["NAMESPACES", "PARTITIONS", "SERVERS"],
) -> "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]":
    """Return a function that completes names of a kind; it imports the kind when it is called."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> "list[CompletionItem]":
        from partita.kube import client

        return _complete(ctx, getattr(client, kind), begun)

    return complete


def _complete(
    ctx: click.Context,
    kind: "Kind",
    begun: str,
    *,
    namespace: str = "",
    name: Callable[[dict[str, Any]], str] = lambda meta: str(meta["name"]),
    keep: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> "list[CompletionItem]":
    """Return matching names in the cluster; empty, without a message, if it does not answer."""
    import asyncio  # here: all commands import this module, also for their help

    from click.shell_completion import CompletionItem

    from partita.cli.connection import open_cluster
    from partita.kube.connect import current_namespace
    from partita.kube.errors import ForbiddenError

    cluster = (ctx.params.get("kubeconfig"), ctx.params.get("context"))

    async def names() -> list[str]:
        async with asyncio.timeout(_PATIENCE), open_cluster(*cluster) as kube:
            try:
                items, _ = await kube.list(kind, namespace=namespace)
            except ForbiddenError:
                if namespace or not kind.namespaced:
                    raise
                items, _ = await kube.list(kind, namespace=current_namespace(*cluster))
            return sorted(name(item["metadata"]) for item in items if keep(item))

    try:
        found = asyncio.run(names())
    except (UserError, TimeoutError):
        return []
    return [CompletionItem(one) for one in found if one.startswith(begun)]
