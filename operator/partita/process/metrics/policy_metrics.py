"""What the policies of the partitions decided, and how well starts were estimated. No I/O."""

from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from partita.metric import counter, gauge
from partita.scheduling.policy_runner import PolicyRunner
from partita_policies.start_times.calibration import Accuracy

__all__ = ["policy_metrics", "start_metrics"]

_POLICY = ("partition", "policy")


def policy_metrics(partitions: Mapping[str, PolicyRunner]) -> Iterator[Metric]:
    """Yield the counters and the health of the policies, by partition."""
    runners = {(name, runner.spec.name): runner for name, runner in partitions.items()}
    yield counter(
        "partita_policy_decisions_total",
        "Decisions that the active policy was asked for.",
        _POLICY,
        {key: runner.cycles for key, runner in runners.items()},
    )
    yield counter(
        "partita_policy_fallbacks_total",
        "Decisions that the fallback made instead of the active policy.",
        _POLICY,
        {key: runner.fallbacks for key, runner in runners.items()},
    )
    yield counter(
        "partita_guard_rejections_total",
        "Placements of the active policy that the guard rejected.",
        _POLICY,
        {key: runner.rejected for key, runner in runners.items()},
    )
    yield gauge(
        "partita_policy_healthy",
        "1 if the active policy made the last decision and all policies of the partition could be "
        "loaded, otherwise 0.",
        _POLICY,
        {key: not (runner.failure or runner.problem) for key, runner in runners.items()},
    )
    shadows = {
        (name, shadow): count
        for name, runner in partitions.items()
        for shadow, count in runner.shadow_counts.items()
    }
    yield counter(
        "partita_shadow_decisions_total",
        "Decisions that a shadow policy was asked for.",
        _POLICY,
        {key: count.cycles for key, count in shadows.items()},
    )
    yield counter(
        "partita_shadow_agreements_total",
        "Decisions in which the shadow policy agreed with the active policy.",
        _POLICY,
        {key: count.agreed for key, count in shadows.items()},
    )
    yield counter(
        "partita_shadow_failures_total",
        "Decisions in which the shadow policy failed or exceeded the time limit.",
        _POLICY,
        {key: count.failures for key, count in shadows.items()},
    )


def start_metrics(partitions: Mapping[str, Accuracy]) -> Iterator[Metric]:
    """Yield how well the first estimate of each job's start came true, by partition."""
    known = {(name,): accuracy for name, accuracy in partitions.items()}
    yield counter(
        "partita_estimated_starts_total",
        "Jobs that started after it had been estimated when.",
        ("partition",),
        {key: accuracy.starts for key, accuracy in known.items()},
    )
    yield counter(
        "partita_estimated_starts_held_total",
        "Jobs that started within the interval that was estimated first.",
        ("partition",),
        {key: accuracy.held for key, accuracy in known.items()},
    )
    yield gauge(
        "partita_estimated_start_error_seconds",
        "Median time from the midpoint of the first estimated interval to the start, of the last "
        "300 jobs; 0 before the first.",
        ("partition",),
        {key: accuracy.error for key, accuracy in known.items()},
    )
