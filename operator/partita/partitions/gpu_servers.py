"""The GPUServers and server Pods that a partition needs, and those that it releases. No I/O."""

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from partita.models import GPUPartition, GPUServer
from partita.models.gpu_server import GPUServerSpec
from partita.models.sharing import SharingSpec
from partita.store.views import PodView

__all__ = ["GPUServerChanges", "followed", "plan_gpu_servers", "server_spec"]


@dataclass(slots=True)
class GPUServerChanges:
    """Changes to make; empty if the actual state is the desired one."""

    create_servers: list[str] = field(default_factory=list)
    """Names of GPUServers to create."""
    delete_servers: list[GPUServer] = field(default_factory=list)
    """GPUServers to release; they are drained first."""
    create_pods: list[GPUServer] = field(default_factory=list)
    """GPUServers whose server Pod is missing."""
    bring_back: list[GPUServer] = field(default_factory=list)
    """GPUServers whose server Pod is missing on the node where their last Pods end."""
    record: list[tuple[GPUServer, PodView]] = field(default_factory=list)
    """GPUServers whose status lacks the UID of their server Pod."""
    delete_pods: list[PodView] = field(default_factory=list)
    """Server Pods that have ended, or whose GPU is released."""
    reset: list[GPUServer] = field(default_factory=list)
    """GPUServers whose status was reported by a server Pod that no longer exists."""
    finish: list[GPUServer] = field(default_factory=list)
    """Drained GPUServers whose finalizer can be removed."""


def plan_gpu_servers(
    partition: GPUPartition | None,
    servers: Sequence[GPUServer],
    pods: Mapping[str, PodView],
    nodes: Container[str],
    *,
    ending: Container[str] = (),
    probing: Container[str] = (),
    template_hash: str = "",
    unknown: bool = False,
) -> GPUServerChanges:
    """Compare the desired state of a partition with the actual one.

    Parameters
    ----------
    partition
        The partition; None once it is deleted: then all its GPUs are released.
    servers
        Its GPUServers.
    pods
        Server Pods, by name of their GPUServer.
    nodes
        Names of the existing nodes.
    ending
        Names of the GPUServers with claims whose Pods are all being deleted. A Pod with a claim
        ends only while an agent is on its node: kubelet asks it to unprepare the claim before
        it reports that the Pod has ended (`SyncTerminatingPod` in k8s.io/kubernetes 1.36,
        pkg/kubelet/kubelet.go).
    probing
        Names of the GPUServers whose probe Pod ends, or is about to: it has a claim, too.
    template_hash
        Hash of the settings from which server Pods are created (`server_pod_hash`). A Pod that was
        created from others, and has not started, is replaced: its selectors, for example, may
        have kept it from every node.
    unknown
        Whether the partition, or one of its GPUServers, exists but could not be read. Then the
        number of GPUs that it needs or has is unknown, so none is added or released.
    """
    todo = GPUServerChanges()
    going = partition is None or partition.metadata.deletion_timestamp is not None
    staying = [s for s in servers if s.metadata.deletion_timestamp is None]
    for server in servers:
        if server.metadata.deletion_timestamp is not None:
            name = server.metadata.name
            _release(
                server, pods.get(name), nodes, ending=ending, probing=name in probing, todo=todo
            )
    if unknown:
        for server in staying if partition is not None else ():
            _plan_pod(server, pods.get(server.metadata.name), nodes, ending, todo)
        return todo
    if partition is None or going:
        todo.delete_servers += staying
        return todo
    spec = partition.spec
    outdated = [s for s in staying if _needs_new_server(s.spec, spec.sharing)]
    todo.delete_servers += outdated
    current = [s for s in staying if s not in outdated]
    surplus = len(current) - spec.gpus
    if surplus > 0:
        todo.delete_servers += sorted(current, key=_release_order)[:surplus]
    # A GPU that is still being released counts: never more GPUs than desired are occupied.
    missing = spec.gpus - len(servers)
    if missing > 0:
        todo.create_servers += _free_names(partition, servers, missing)
    leaving = {s.metadata.name for s in todo.delete_servers}
    for server in current:
        if server.metadata.name not in leaving:
            pod = pods.get(server.metadata.name)
            _plan_pod(server, pod, nodes, ending, todo)
            if pod and not _stranded(pod, nodes) and _outdated(server, pod, template_hash):
                todo.delete_pods.append(pod)
    return todo


def server_spec(name: str, sharing: SharingSpec) -> dict[str, object]:
    """Return the spec of a GPUServer of a partition.

    Parameters
    ----------
    name
        Name of the partition.
    sharing
        How the partition shares its GPUs.
    """
    return {
        "partition": name,
        "mode": sharing.mode.value,
        "maxJobs": sharing.max_jobs_per_gpu,
        "protocol": sharing.protocol.value,
        "isolation": sharing.isolation.value,
        **followed(sharing),
    }


def followed(sharing: SharingSpec) -> dict[str, str]:
    """Return the fields of a GPUServer's spec whose change the agent follows while jobs run."""
    return {
        "unknownProcesses": sharing.unknown_processes.value,
        "enforcement": sharing.enforcement.value,
    }


def _needs_new_server(spec: GPUServerSpec, sharing: SharingSpec) -> bool:
    """Return whether a GPU has to be released and acquired again to follow its partition.

    That is so if MPS has to be started again, which would end all its clients.
    """
    return (
        spec.mode is not sharing.mode
        or spec.max_jobs != sharing.max_jobs_per_gpu
        or spec.protocol is not sharing.protocol
        or spec.isolation is not sharing.isolation
    )


def _release_order(server: GPUServer) -> tuple[bool, int, int]:
    """Sort key for releases: unready or drained first, then fewest jobs, then highest index."""
    ready = server.status.holds("Ready") and server.spec.drain_since is None
    index = server.metadata.name.rsplit("-", 1)[-1]
    return ready, len(server.status.allocations), -int(index) if index.isdigit() else 0


def _free_names(partition: GPUPartition, servers: Sequence[GPUServer], count: int) -> list[str]:
    taken = {s.metadata.name for s in servers}
    names = (f"{partition.metadata.name}-{index}" for index in itertools.count())
    return [*itertools.islice((name for name in names if name not in taken), count)]


def _release(
    server: GPUServer,
    pod: PodView | None,
    nodes: Container[str],
    *,
    ending: Container[str],
    probing: bool,
    todo: GPUServerChanges,
) -> None:
    """Release a GPU once it has no allocations and no probe: its Pod, then its finalizer."""
    if server.status.allocations:
        if pod is None and server.metadata.name in ending and server.status.node in nodes:
            todo.bring_back.append(server)
        return
    if pod is None:
        todo.finish.append(server)
    elif _stranded(pod, nodes) or not (pod.deleting or probing):
        todo.delete_pods.append(pod)


def _stranded(pod: PodView, nodes: Container[str]) -> bool:
    """Return whether a Pod's node, which would have to confirm a deletion, no longer exists."""
    return bool(pod.node) and pod.node not in nodes


def _outdated(server: GPUServer, pod: PodView, template_hash: str) -> bool:
    """Return whether a server Pod that has not started was created from other settings.

    A Pod has no hash if something removes annotations: then its replacement would have none, too.
    """
    differs = bool(pod.template_hash) and pod.template_hash != template_hash
    waits = pod.startup is not None and pod.alive and not pod.deleting
    return differs and waits and not server.status.allocations


def _plan_pod(
    server: GPUServer,
    pod: PodView | None,
    nodes: Container[str],
    ending: Container[str],
    todo: GPUServerChanges,
) -> None:
    """Plan the changes to the server Pod of a GPU that is kept."""
    status = server.status
    if pod is None:
        if server.metadata.name in ending and status.node in nodes:
            todo.bring_back.append(server)
            return
        if server.spec.drain_reason is not None:
            return  # its node is under maintenance: see `partita.partitions.maintenance`
        if status.uuid and status.allocations:
            return  # the jobs on the old GPU end first, because the new Pod may get another GPU
        if status.uuid or status.conditions:
            todo.reset.append(server)
        else:
            todo.create_pods.append(server)
        return
    if pod.uid != status.pod_uid:
        todo.record.append((server, pod))
    if _stranded(pod, nodes) or (pod.outcome.finished and not pod.deleting):
        todo.delete_pods.append(pod)
