"""The metrics that Prometheus scrapes from the operator.

Names follow https://prometheus.io/docs/practices/naming/: base units, the unit in the name,
`_total` for counters. Label sets are bounded: partitions, GPUs and the values of Partita's
enumerations, but no job or Pod, and namespaces only with `--namespace-metrics`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.registry import Collector
from typing_extensions import override

from partita import __version__
from partita.accounting.usage_meter import UsageMeter
from partita.metric import counter, gauge
from partita.process.metrics.claim_steps import ClaimSteps
from partita.process.metrics.gpu_metrics import gpu_metrics, usage_metrics
from partita.process.metrics.policy_metrics import policy_metrics, start_metrics
from partita.process.metrics.queue_metrics import queue_metrics
from partita.process.metrics.tally import Tally
from partita.scheduling.policy_runner import PolicyRunner
from partita.store.state import State
from partita_policies.start_times.calibration import Accuracy

__all__ = ["Metrics"]


@dataclass(eq=False)
class Metrics(Collector):
    """The operator's metrics, read from its state on each scrape.

    A process that is not the leader exports only this fact, because its data about queues and GPUs
    is missing or outdated.

    Parameters
    ----------
    state
        The state that the watches update.
    meter
        Counts what is allocated and used.
    leads
        Returns whether the Lease is held.
    writes
        Numbers of API writes by verb and resource, counted by the client.
    unrecorded
        Returns the number of decisions that could not be recorded; None if recording is off.
    """

    state: State
    meter: UsageMeter
    leads: Callable[[], bool]
    writes: Mapping[tuple[str, str], int]
    unrecorded: Callable[[], int | None] = lambda: None

    def __post_init__(self) -> None:
        self._runner: Callable[[str], PolicyRunner | None] | None = None
        self._starts: Callable[[], Iterable[tuple[str, Accuracy]]] = tuple
        self.tally = Tally()
        self.claims = ClaimSteps(self.state, self.tally)
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def lead(
        self,
        runner: Callable[[str], PolicyRunner | None],
        starts: Callable[[], Iterable[tuple[str, Accuracy]]] = tuple,
    ) -> None:
        """Export all metrics from now on, because the state is complete.

        Parameters
        ----------
        runner
            Returns a partition's policies; None before its first cycle.
        starts
            Returns how well the estimated starts of each partition came true.
        """
        self._runner, self._starts = runner, starts

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        leads = self._runner is not None and self.leads()
        yield gauge(
            "partita_leader",
            "1 if this process is the leader, 0 if it waits for the Lease.",
            (),
            {(): leads},
        )
        yield gauge(
            "partita_build_info",
            "Always 1; the label is the version that runs.",
            ("version",),
            {(__version__,): 1},
        )
        if self._runner is None:
            return
        writes = {}
        for (how, resource), number in self.writes.items():
            verb, _, subresource = how.partition("/")
            writes[verb, resource, subresource] = number
        yield counter(
            "partita_api_writes_total",
            "Writes to the Kubernetes API, except renewals of the Lease.",
            ("verb", "resource", "subresource"),
            writes,
        )
        unrecorded = self.unrecorded()
        yield counter(
            "partita_unrecorded_decisions_total",
            "Decisions that `--record` dropped because it was too slow or could not write.",
            (),
            {} if unrecorded is None else {(): unrecorded},
        )
        self.tally.export_only(self.state.partitions.keys())
        yield from self.tally.registry.collect()
        yield from queue_metrics(self.state)
        yield from gpu_metrics(self.state)
        runners = {name: self._runner(name) for name in self.state.partitions}
        yield from policy_metrics({name: r for name, r in runners.items() if r is not None})
        yield from start_metrics(dict(self._starts()))
        yield from usage_metrics(self.meter, self.state)
