"""The times that a program may set otherwise, such as one with a clock of its own.

A program makes one `Times` where it starts, and hands it to what waits. Other times are constants
of the module that uses them.
"""

from dataclasses import dataclass

__all__ = ["Times"]


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds.

    They are assumptions, unless their text names a source.
    """

    # Watches and requests.

    watch: float = 240.0
    """Until the API server ends a watch."""
    watch_pause: float = 0.05
    """Until a watch is opened again; doubled after each failure."""
    longest_watch_pause: float = 2.0
    """Until a watch is opened again, at most."""
    request_pause: float = 0.1
    """Until a request is repeated for the first time; tripled after each failure. With six attempts
    the last one is made after about 6 s."""
    check_crds: float = 2.0
    """Between two checks of CRDs that are missing or too old."""
    check_clock: float = 10.0
    """Between two checks of the clock, at most: it may be set back at any time."""

    # Jobs and claims.

    turn: float = 0.005
    """For which jobs are reconciled before the cycles start that these request."""
    first_back_off: float = 2.0
    """Before the first retry of a failed program, doubled each time. batch/v1 Job starts at 10 s.
    """
    pods_created: float = 0.2
    """For which a cycle waits until its Pods are created, before it writes the ledgers. An
    assumption: an API server that is not slow creates one in 5 to 20 ms. For the others the GPUs
    are reserved for `reserved`."""
    pods_started: float = 1.0
    """For which a cycle waits until its Pods are started, or a preemption until the Pod exists.
    This slows cycles down if the API server is slow."""
    reserved: float = 1.0
    """For which GPUs are reserved for a job whose Pod is being created. An admission webhook may
    delay a Pod by 30 s, and no GPU waits for it so long."""
    bind_within: float = 10.0
    """From the allocation until it is taken back if kube-scheduler refuses its Pod: about the time
    in which kube-scheduler tries such a Pod again."""
    unbound_node: float = 30.0
    """For which a claim does not use a node on which kube-scheduler did not bind its Pod: about the
    time in which what other Pods request on a node changes."""
    protected: float = 60.0
    """For which a Pod is not evicted again after a PodDisruptionBudget has protected it: usually a
    workload gets another ready Pod in this time."""
    limits_effective: float = 3.0
    """From a change of the ledger until a container that starts has the new limits: the agent
    rewrites the limits within 1 s, and the clocks of operator and node differ by less than the
    rest."""
    policy_built: float = 10.0
    """For which a cycle waits until a policy is built; then the fallback decides until it is. An
    assumption: a module of a plug-in is imported in seconds."""
    build_policy_again: float = 30.0
    """Until building a policy is retried: a missing model file may be available by then."""

    # Statuses. A status that soon changes again need not be written.

    queued_within: float = 0.4
    """Until `Queued` is first written. Most jobs start sooner, and then it is never written."""
    assigned_within: float = 1.0
    """Until `Assigned` is written. Most Pods run sooner, and then `Running` is written."""
    running_within: float = 0.5
    """Until `Running` is written. A program that ends sooner needs one write only."""
    reason_within: float = 0.5
    """Until a changed reason is written; 2 s are guaranteed."""
    scheduling_within: float = 1.0
    """Until it is written that a claim waits for the next cycle. Most get a GPU or another reason
    sooner, and then it is never written."""
    refresh: float = 15.0
    """Between two writes that only update numbers in a message or a position in the queue, near the
    head of the queue."""
    estimate_starts: float = 5.0
    """Between two rounds in which is computed when the waiting jobs start, at least. Most jobs
    start sooner, and then nothing is written."""
    partition_status: float = 1.0
    """Between two writes of the status of a partition: every allocation changes its numbers."""

    # Writes.

    retry_after: float = 2.0
    """Until what failed of a job or claim is repeated: a read, a write, its reconciliation."""
    evict_again: float = 10.0
    """Until the next try to evict a Pod that a PodDisruptionBudget protects."""
    retry_mark: float = 1.0
    """Until a failed write of a release mark is repeated: the end of a Pod waits for it."""
    write_usage: float = 60.0
    """Between two writes of the records of usage. After a crash, usage since the last one is
    missing of those allocations that have ended."""
    check_devices: float = 30.0
    """Between two checks of the device classes and resource slices if nothing changes."""
    devices_pause: float = 1.0
    """Between two such checks, at least: when an operator starts, many GPUs become ready."""
    check_templates: float = 10.0
    """Between two checks of all Pods that wait for a claim template."""
    check_profiles: float = 3600.0
    """Between two looks for ApplicationProfiles that have expired."""
    unused_template: float = 3600.0
    """For which no Pod has named a claim template when it is deleted."""

    # Recordings and traces.

    repeat_decision: float = 60.0
    """Until a decision that equals the previous one is recorded again."""
    retry_recording: float = 30.0
    """Until the next attempt after a decision could not be recorded."""
    close_recording: float = 2.0
    """For which shutdown waits for decisions that are not recorded yet."""
    close_traces: float = 3.0
    """For which shutdown waits for spans that are not sent yet."""
    cancel_again: float = 1.0
    """Until a task that has not ended at shutdown is cancelled again."""

    # The console.

    check_operator: float = 10.0
    """Between two reads of the operator's Lease."""
    page_pause: float = 0.25
    """Between two versions of the page, so that a burst of changes is one update."""
    stream_silence: float = 15.0
    """Without a change after which a stream sends a keep-alive event and checks the viewer's rights
    again."""
    viewer_patience: float = 10.0
    """In which a viewer must receive an event; otherwise the stream is closed."""
    viewer_rights: float = 30.0
    """For which an answer about a viewer's rights is cached; a revoked right stays valid until
    then."""

    # `partita doctor`.

    test_start: float = 120.0
    """For a test Pod to start: its image may have to be pulled."""
    test_run: float = 90.0
    """For a test program to end: MPS starts, memory is allocated and held."""
    test_hold: float = 15.0
    """For which a test job keeps its memory: longer than the agent takes to report it."""
    test_report: float = 60.0
    """For the agent to report the memory of a test job."""
