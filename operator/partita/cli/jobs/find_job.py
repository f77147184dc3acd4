"""Finds the job that was named on the command line."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from partita.cli.options import Cluster, JobName
from partita.cli.terminal import UserError

if TYPE_CHECKING:
    from partita.kube.client import Kube

__all__ = ["check_namespace", "find_job", "key_of"]


def key_of(body: dict[str, Any]) -> str:
    """Return `namespace/name` of an object, or its name if it belongs to no namespace."""
    meta = body["metadata"]
    return "/".join(filter(None, [meta.get("namespace"), meta["name"]]))


async def find_job(kube: "Kube", job: JobName, cluster: Cluster) -> dict[str, Any]:
    """Return the SharedGPUJob with this name, as JSON: the model takes 0.1 s to import.

    Raises
    ------
    UserError
        The job does not exist. The message contains the namespaces that have a job with this name,
        or says that a workload has it.
    """
    from partita.kube.client import JOBS
    from partita.kube.connect import current_namespace
    from partita.kube.errors import ForbiddenError, NotFoundError

    namespace = job.namespace or current_namespace(*cluster)
    with suppress(NotFoundError):
        return await kube.get(JOBS, job.name, namespace)
    await check_namespace(kube, namespace)
    try:
        jobs, _ = await kube.list(JOBS)
    except ForbiddenError:
        jobs = []
    elsewhere = [j["metadata"]["namespace"] for j in jobs if j["metadata"]["name"] == job.name]
    if elsewhere:
        advice = f"it is in {', '.join(sorted(elsewhere))}: write -n {min(elsewhere)}"
    elif await _is_workload(kube, job.name, namespace):
        advice = f"a Pod has this name: `partita explain pod/{job.name} -n {namespace}` shows it"
    else:
        advice = "see `partita jobs -A`"
    raise UserError(f"there is no SharedGPUJob {job.name} in namespace {namespace}; {advice}")


async def _is_workload(kube: "Kube", name: str, namespace: str) -> bool:
    """Return whether a Pod of this name exists and has claims."""
    from partita.kube.client import PODS
    from partita.kube.errors import ForbiddenError, NotFoundError

    try:
        return bool((await kube.get(PODS, name, namespace))["spec"].get("resourceClaims"))
    except (ForbiddenError, NotFoundError):
        return False


async def check_namespace(kube: "Kube", namespace: str) -> None:
    """Check that a namespace exists, if the user may read namespaces.

    Raises
    ------
    NotFoundError
        The namespace does not exist.
    """
    from partita.kube.client import NAMESPACES
    from partita.kube.errors import ForbiddenError

    with suppress(ForbiddenError):
        await kube.get(NAMESPACES, namespace)
