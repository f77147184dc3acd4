"""The dashboard and the alert rules use metrics that exist; each alert has a runbook."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from metrics.example import series
from metrics.monitoring import MONITORING, ROOT, alerts, dashboard, names_in
from partita.pods.server_pod import ServerPodSettings, build_server_pod
from support.builders import a_partition, a_server

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


def test_every_figure_that_is_asked_for_is_defined_and_has_the_labels():
    for where, expression in expressions():
        names = names_in(expression)
        assert names, where
        assert names <= SERIES.keys(), where
        known = TARGET_LABELS.union(*(SERIES[name] for name in names))
        for group in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", group)) <= known, (where, group)
        for name, matchers in re.findall(r"(partita_\w+)\{([^}]*)\}", expression):
            used = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", matchers))
            assert used <= set(SERIES[name]), (where, matchers)


def test_every_figure_is_on_the_dashboard():
    shown = set().union(
        *(names_in(target["expr"]) for panel in panels() for target in panel["targets"])
    )
    # A histogram is shown by its buckets.
    wanted = {name for name in SERIES if not name.endswith(("_count", "_sum"))}
    assert wanted - shown == set()


def test_an_alert_says_what_is_wrong_and_links_a_page_that_helps():
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, name
        assert rule["annotations"]["summary"], name
        page = ROOT / rule["annotations"]["runbook_url"]
        title, *lines = page.read_text().splitlines()
        assert (page.name, title) == (f"{name}.md", f"# {name}")
        sections = [line for line in lines if line.startswith("## ")]
        assert sections == ["## Diagnosis", "## Resolution"], name


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


def monitors() -> dict[str, dict[str, Any]]:
    """The PodMonitors by name."""
    bodies = yaml.safe_load_all((MONITORING / "pod-monitor.yaml").read_text())
    return {body["metadata"]["name"]: body for body in bodies}


def finds(monitor: dict[str, Any], pod: dict[str, Any], namespace: str) -> bool:
    """Whether a scrape finds a Pod and the port that it names."""
    ports = {port["name"] for c in pod["spec"]["containers"] for port in c.get("ports", ())}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    return (
        wanted.items() <= pod["metadata"]["labels"].items()
        and monitor["metadata"]["namespace"] == namespace
        and endpoint["port"] in ports
    )


def base(file: str, kind: str) -> list[dict[str, Any]]:
    """The objects of a kind in a file of the base."""
    bodies = yaml.safe_load_all((ROOT / "manifests" / "base" / file).read_text())
    return [body for body in bodies if body["kind"] == kind]


def server_pod() -> dict[str, Any]:
    settings = ServerPodSettings(namespace="partita-servers", image="i", service_account="agent")
    return build_server_pod(a_server(), a_partition(), settings)


def test_the_scrapes_find_the_pods_of_operator_and_agents():
    (deployment,) = base("operator.yaml", "Deployment")
    operator, agent = deployment["spec"]["template"], server_pod()
    found = {
        name: (finds(one, operator, "partita-system"), finds(one, agent, "partita-servers"))
        for name, one in monitors().items()
    }
    assert found == {"partita-operator": (True, False), "partita-agents": (False, True)}


def test_prometheus_may_reach_the_ports_that_are_scraped():
    policies = {p["metadata"]["namespace"]: p for p in base("network.yaml", "NetworkPolicy")}
    for monitor in monitors().values():
        (ingress,) = policies[monitor["metadata"]["namespace"]]["spec"]["ingress"]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert [port["port"] for port in ingress["ports"]] == [endpoint["port"]]
        assert ingress["from"]
        assert all(source.keys() == {"namespaceSelector"} for source in ingress["from"])


def test_the_component_has_every_file_of_its_folder():
    kustomization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    (generated,) = kustomization["configMapGenerator"]
    files = {*kustomization["resources"], *(f.split("=")[1] for f in generated["files"])}
    assert files | {"kustomization.yaml"} == {path.name for path in MONITORING.iterdir()}
