"""How long the agent waits, and how often it looks."""

from dataclasses import dataclass

__all__ = ["AgentTimes"]


@dataclass(frozen=True)
class AgentTimes:
    """The times of one agent and of its MPS container, in seconds.

    Where a field names no source, its value is an assumption.
    """

    # The report

    report_every: float = 1.0
    """Between two comparisons of the status with the current report."""
    decisive_every: float = 1.0
    """Between two reports of what decides about jobs."""
    numbers_every: tuple[float, float] = (10.0, 60.0)
    """Between two reports of other numbers: the shortest and the longest pause."""

    # The GPUServer

    server_missed_every: float = 15.0
    """Between two warnings that it could not be read yet."""

    # The GPU

    setup_retry: float = 5.0
    """Before a GPU that could not be acquired is tried again."""
    locked_within: float = 1.0
    """In which a lock must be free. The MPS container holds it for an instant, several times a
    second, to read its holder."""
    check_every: float = 5.0
    """Between two checks of the GPU, MPS and kubelet if no event requests one."""
    driver_answers_within: float = 20.0
    """For a call of NVML. The first one on a node without the persistence daemon loads the driver,
    which takes several seconds."""
    samples_within: float = 10.0
    """Without a sample, after which NVML counts as hung."""
    sample_retry: float = 1.0
    """After an error of the driver, before the next sample."""
    batch_every: float = 0.5
    """Between two batches of samples that are taken into account, and two reads of what programs
    compute."""
    slow_every: float = 1.0
    """Between two reads of metrics that are slow to read (PCIe alone takes 40 ms) or change slowly.
    """
    event_wait: float = 0.5
    """After which a thread that waits for events of the driver checks whether it is stopped."""
    quiet_after_unknown: float = 60.0
    """Without a further error, after which a GPU with a memory error or an unknown Xid takes jobs
    again, with drivers before 565: NVML does not tell there whether the GPU needs a recovery.

    An assumption (no check): with drivers before 565 a GPU is well after 1 min without an error, or
    5 min after an Xid that asks for a reset. If not, jobs start on it until its next error.
    """
    quiet_after_reset: float = 300.0
    """Likewise after an Xid that asks for a reset of the GPU."""

    # MPS

    mps_poll: float = 0.2
    """Between two reads of the configuration, and two queries of a daemon that starts."""
    mps_starts_within: float = 60.0
    """Until a server must be ACTIVE. Loading the driver on a node with many GPUs takes long
    (https://docs.nvidia.com/deploy/mps/latest/troubleshooting.html, "Server Initialization")."""
    mps_ends_within: float = 2.0
    """For a daemon to exit after `quit`, again after SIGTERM and again after SIGKILL. A wedged
    server may ignore the first two, and MPS must be back within 15 s."""
    mps_first_pause: float = 1.0
    """Before a daemon that failed to start is started again, doubled each time."""
    mps_answers_within: float = 5.0
    """For a command of the control daemon, but `terminate_client`."""
    terminate_answers_within: float = 1.5
    """For `terminate_client`, so that a process is stopped within 2 s of its violation."""
    fault_restart: float = 10.0
    """In FAULT, after which the daemon is restarted. A server recovers when all clients have
    exited, but a client that ignores the error never exits
    (https://docs.nvidia.com/deploy/mps/latest/, "Error Containment")."""
    fault_shown_for: float = 6.0
    """For which a fault is reported at least. It is longer than the operator waits for the report
    (`partita.jobs.attempts.JUDGEMENT_DELAY`)."""
    canary_within: float = 10.0
    """In which a canary must end, unless the server needed long to start."""

    # The jobs

    terminated_within: float = 10.0
    """In which MPS must terminate a client; otherwise it is wedged. It is longer than kernels of
    programs that share a GPU. kai-gpu-fractioning waits 30 s, but a client that SIGTERM kills is
    not there any more after 5 s."""
    releases_every: float = 0.5
    """Between two lists of the clients while an allocation is being released."""
    terminate_again: float = 3.0
    """Before a process is terminated again. A terminated process needs a moment to release its
    memory, and a failed termination must not be reported ten times a second."""
    unknown_after: float = 10.0
    """After which a process without an allocation counts as unknown."""
    idle_after: float = 60.0
    """Without a kernel, after which a job is idle. Shorter pauses are usual, and reports of them
    would be many writes."""
    peaks_within: float = 2.0
    """For which kubelet may have to wait until the peaks of an ended Pod are written."""
    learn_after: float = 600.0
    """Of use, after which the usage of a workload that never ends by itself is stored the first
    time. Then it is stored each time it has lasted twice as long. A program that serves has loaded
    its model by then."""
    profile_retry: float = 0.2
    """Before a profile that somebody else has written is written again."""
    limits_every: float = 1.0
    """Between two checks of the limits of containers, for new ones, and of the probe Pod."""

    # Claims

    sockets_every: float = 1.0
    """Between two checks that the sockets for kubelet exist."""
    prepare_within: float = 35.0
    """In which a claim that cannot be prepared now is tried again, for example while MPS is
    checked. kubelet tries a Pod whose claim was refused again only after its `syncFrequency` of
    1 min to 1.5 min, because its sync counts as successful (`SyncPod` in k8s.io/kubernetes 1.36,
    pkg/kubelet/kuberuntime/kuberuntime_manager.go)."""
    prepare_retry: float = 0.5
    """Before a claim is tried again."""
    files_every: float = 1.0
    """Between two checks whether the files of claims are as they should be."""
    file_retry: float = 5.0
    """Before a file that could not be changed is tried again."""
    health_every: float = 5.0
    """Between two reports of the GPU's health to kubelet without a change. When the connection of
    one agent ends, kubelet forgets the health of all devices of the driver, also those of the
    node's other agents, until they report again (`HandleWatchResourcesStream` and `clearDriver` in
    k8s.io/kubernetes 1.36, pkg/kubelet/cm/dra/manager.go and healthinfo.go). It also forgets a
    device 30 s after its last report (`DefaultHealthTimeout`)."""
