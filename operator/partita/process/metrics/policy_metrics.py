"""What the policies of the partitions decided. No I/O."""

from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from partita.metric import counter, gauge
from partita.scheduling.policy_runner import PolicyRunner

__all__ = ["policy_metrics"]

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
