"""Updates the requests of jobs after a change in the history of their application."""

from collections.abc import Collection, Mapping

from partita.informer.state import State
from partita.models.profile import ApplicationKey
from partita.reconcile.job_request import takes_memory_from_history, with_profile
from partita_policies.types import Job

__all__ = ["renew_requests"]


def renew_requests(
    applications: Collection[ApplicationKey], state: State, waiting: Mapping[str, dict[str, Job]]
) -> set[str]:
    """Update the requests of jobs whose application has a new history.

    Parameters
    ----------
    applications
        The applications whose history has changed.
    waiting
        The jobs that wait for GPUs, by partition and UID. Requests in which only profile and
        duration change are replaced there.

    Returns
    -------
    set[str]
        UIDs of the jobs and claims to reconcile: their memory, and so their position in the queue,
        is taken from the history.
    """
    if not applications:
        return set()
    profiles = {key: state.profiles.profile(*key) for key in applications}
    to_look = set()
    for uid, job in state.jobs.items():
        key = (job.metadata.namespace, job.spec.application or "")
        finished = job.status.phase is not None and job.status.phase.finished
        if key not in profiles or finished:
            continue
        if takes_memory_from_history(job):
            to_look.add(uid)
            continue
        requests = waiting.get(job.spec.partition, {})
        if uid in requests:
            requests[uid] = with_profile(requests[uid], job, profiles[key])
            state.queues.partitions.add(job.spec.partition)
    for requests in waiting.values():
        to_look |= {
            uid
            for uid, request in requests.items()
            if uid in state.claims and (request.namespace, request.application) in profiles
        }
    return to_look
