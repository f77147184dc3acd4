"""The dashboard and the alert rules use metrics that exist; each alert has a runbook."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from metrics.monitoring import MONITORING, ROOT, alerts, dashboard, names_in, series

SERIES = dict(series())
TARGET_LABELS = {"instance", "job", "pod", "namespace", "container"}
"""What Prometheus adds to every series."""


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every PromQL expression, and where it is."""
    for name, rule in alerts().items():
        yield name, rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


ALL = list(expressions())


@pytest.mark.parametrize(("where", "expression"), ALL, ids=[where for where, _ in ALL])
def test_every_figure_that_is_asked_for_is_defined_and_has_the_labels(where: str, expression: str):
    names = names_in(expression)
    assert names
    assert names <= SERIES.keys()
    known = TARGET_LABELS.union(*(SERIES[name] for name in names))
    for group in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", group)) <= known, group
    for name, matchers in re.findall(r"(partita_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|=)", matchers)) <= set(SERIES[name]), matchers


def test_every_figure_is_on_the_dashboard():
    shown = set().union(
        *(names_in(target["expr"]) for panel in panels() for target in panel["targets"])
    )
    # A histogram is shown by its buckets.
    wanted = {name for name in SERIES if not name.endswith(("_count", "_sum"))}
    assert wanted - shown == set()


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_is_wrong_and_links_a_page_that_helps(name: str):
    rule = alerts()[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"]
    page = ROOT / rule["annotations"]["runbook_url"]
    text = page.read_text()
    assert page.name == f"{name}.md"
    assert text.startswith(f"# {name}\n")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Diagnosis",
        "## Resolution",
    ]


def test_every_runbook_belongs_to_an_alert():
    pages = (ROOT / "docs" / "runbooks").glob("Partita*.md")
    assert {page.stem for page in pages} == alerts().keys()


def test_panels_do_not_overlap():
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    identities = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(identities)) == len(identities)


def test_the_scrape_finds_the_operator_s_pods_and_port():
    (monitor,) = yaml.safe_load_all((MONITORING / "pod-monitor.yaml").read_text())
    operator = ROOT / "manifests" / "base" / "operator.yaml"
    deployment = next(
        body for body in yaml.safe_load_all(operator.read_text()) if body["kind"] == "Deployment"
    )
    pod = deployment["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= deployment["spec"]["selector"]["matchLabels"].items()
    assert monitor["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    ports = {port["name"] for c in pod["spec"]["containers"] for port in c["ports"]}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in ports


def test_the_component_has_every_file_of_its_folder():
    kustomization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    (generated,) = kustomization["configMapGenerator"]
    files = {*kustomization["resources"], *(f.split("=")[1] for f in generated["files"])}
    assert files | {"kustomization.yaml"} == {path.name for path in MONITORING.iterdir()}
