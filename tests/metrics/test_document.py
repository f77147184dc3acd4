"""docs/metrics.md has every metric, and no other."""

import re
from pathlib import Path

from prometheus_client import Metric

from metrics.example import all_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def labels(metric: Metric) -> list[str]:
    return [label for label in metric.samples[0].labels if label != "le"]


def name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def test_the_page_has_each_metric_with_its_type_labels_and_help():
    rows = {
        f"| `{name(m)}` | {m.type} | {', '.join(f'`{x}`' for x in labels(m))} | {m.documentation} |"
        for m in all_metrics()
    }
    assert set(re.findall(r"^\| `partita_.*$", PAGE, re.MULTILINE)) == rows


def test_the_page_has_the_bounds_of_each_histogram():
    bounds = {
        f"Bounds of `{metric.name}`: "
        + ", ".join(
            f"{float(sample.labels['le']):g}"
            for sample in metric.samples
            if sample.labels.get("le", "+Inf") != "+Inf"
        )
        for metric in all_metrics()
        if metric.type == "histogram"
    }
    assert set(re.findall(r"^(Bounds of .*)\.$", PAGE, re.MULTILINE)) == bounds


def test_names_follow_the_conventions():
    metrics = list(all_metrics())
    names = [name(metric) for metric in metrics]
    assert len(set(names)) == len(names)
    for metric in metrics:
        assert re.fullmatch(r"partita_[a-z_]+", metric.name)
        assert metric.documentation.endswith("."), metric.name
        # Base units alone: https://prometheus.io/docs/practices/naming/#base-units
        assert not re.search(r"milli|micro|minutes|hours|_[kmg]i?b|percent|_ms\b", metric.name)
        assert (metric.type == "counter") == (name(metric).endswith("_total")), metric.name


def test_only_the_agents_name_what_grows_without_bound():
    of_agents = ("partita_agent_", "partita_workload_")
    metrics = [metric for metric in all_metrics() if not metric.name.startswith(of_agents)]
    found = {label for metric in metrics for label in labels(metric)}
    assert not {label for label in found if re.search("job|claim|pod|uid$|container", label)} - {
        "uuid"
    }
