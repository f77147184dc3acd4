"""The page that Prometheus scrapes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from typing_extensions import override

from partita import __version__
from partita.accounting.usage_meter import UsageMeter
from partita.decide.policy_runner import PolicyRunner
from partita.informer.state import State
from partita.operator.metrics import definitions as d
from partita.operator.metrics.claim_steps import ClaimSteps
from partita.operator.metrics.collector import (
    Sample,
    gpu_samples,
    partition_samples,
    policy_samples,
    usage_samples,
    write_samples,
)
from partita.operator.metrics.definitions import Metric
from partita.operator.metrics.tally import Distribution, Tally

__all__ = ["Metrics"]


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
    by_namespace
        Whether these amounts have the label of their namespace.
    leads
        Returns whether the Lease is held.
    writes
        Numbers of API writes by verb and resource, counted by the client.
    unrecorded
        Returns the number of decisions that could not be recorded; None if recording is off.
    """

    def __init__(
        self,
        state: State,
        meter: UsageMeter,
        *,
        by_namespace: bool = False,
        leads: Callable[[], bool],
        writes: Mapping[tuple[str, str], int],
        unrecorded: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._state = state
        self._meter = meter
        self._by_namespace = by_namespace
        self._leads = leads
        self._writes = writes
        self._unrecorded = unrecorded
        self._runner: Callable[[str], PolicyRunner | None] | None = None
        self.tally = Tally()
        self.claims = ClaimSteps(state, self.tally)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def lead(self, runner: Callable[[str], PolicyRunner | None]) -> None:
        """Export all metrics from now on, because the state is complete.

        Parameters
        ----------
        runner
            Returns a partition's policies; None before its first cycle.
        """
        self._runner = runner

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that the `Accept` header requests."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def describe(self) -> Iterable[Family]:
        """Return nothing, because no other collector in the registry uses the same names."""
        return ()

    @override
    def collect(self) -> Iterator[Family]:
        """Yield every metric, with all samples of the same name together."""
        families: dict[Metric, CounterMetricFamily | GaugeMetricFamily] = {}
        for sample in self._samples():
            metric = sample.metric
            if metric not in families:
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                families[metric] = kind(metric.name, metric.help, labels=metric.labels)
            families[metric].add_metric(sample.labels, sample.value)
        yield from families.values()
        if self._runner is not None:
            for metric, series in self.tally.distributions.items():
                yield _histogram(metric, series)

    def _samples(self) -> Iterator[Sample]:
        yield Sample(d.BUILD, 1, (__version__,))
        yield Sample(d.LEADER, self._runner is not None and self._leads())
        if self._runner is None:
            return
        self.tally.keep_only(self._state.partitions.keys())
        yield from write_samples(self._writes)
        yield from partition_samples(self._state)
        yield from gpu_samples(self._state)
        yield from usage_samples(self._state, self._meter, by_namespace=self._by_namespace)
        for name in self._state.partitions:
            for metric, labels, count in self.tally.counted(name):
                yield Sample(metric, count, labels)
            runner = self._runner(name)
            if runner is not None:
                yield from policy_samples(name, runner)
        unrecorded = self._unrecorded()
        if unrecorded is not None:
            yield Sample(d.UNRECORDED, unrecorded)


def _histogram(
    metric: Metric, series: Mapping[tuple[str, ...], Distribution]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(str, metric.buckets), "+Inf"]
    for labels, values in series.items():
        buckets = list(zip(bounds, accumulate(values.counts), strict=True))
        family.add_metric(labels, buckets, values.sum)
    return family
