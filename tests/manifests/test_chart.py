"""The Helm chart is `manifests/base`, with values; with an overlay's values it is that overlay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.pages import File, read_page
from manifests.rendering import ROOT, documents, helm, is_taken, kustomize, run
from partita import __version__
from support.clusters import ApiServer
from support.kubectl import Kubectl

KEEP = "helm.sh/resource-policy"
SMALL = {"requests": {"cpu": "10m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
OPERATOR = {"app.kubernetes.io/name": "partita", "app.kubernetes.io/component": "operator"}


def spread(key: str, when: str, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": OPERATOR}
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}
    return rule | more


VALUES: dict[str, dict[str, Any]] = {
    "base": {},
    "single-node": {"replicas": 1, "resources": SMALL},
    "ha": {
        "replicas": 3,
        "topologySpreadConstraints": [
            spread("kubernetes.io/hostname", "DoNotSchedule", matchLabelKeys=["pod-template-hash"]),
            spread("topology.kubernetes.io/zone", "ScheduleAnyway"),
        ],
    },
    "helm": {
        "monitoring": dict.fromkeys(("podMonitors", "alerts", "dashboard"), True),
        "console": dict.fromkeys(("ingress", "route", "oidc"), True) | {"host": "gpus.example.com"},
    },
}


def without_helms(objects: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Return objects as they were before Helm was told what to keep."""
    for found in objects.values():
        notes = found["metadata"].get("annotations", {})
        notes.pop(KEEP, None)
        if not notes:
            found["metadata"].pop("annotations", None)
    return objects


@pytest.mark.parametrize("overlay", VALUES)
def test_with_its_values_it_is_the_overlay(
    overlay: str, chart: Path, tmp_path: Path, api_server: ApiServer
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES[overlay]))
    text = helm(chart, "--values", str(values))
    wanted = documents(kustomize(overlay)) | documents(kustomize("limits"))
    del wanted["Namespace", "partita-system"]  # Helm makes it, with --create-namespace
    assert without_helms(documents(text)) == wanted


def test_limits_are_left_out_where_the_cluster_cannot_replace_them(
    chart: Path, api_server: ApiServer
) -> None:
    limits = documents(kustomize("limits")).keys()
    assert limits <= documents(helm(chart)).keys()
    done = run("helm", "template", "partita", chart, "--kube-version=1.35.0")
    assert done.returncode == 0, done.stderr
    assert not limits & documents(done.stdout).keys()


def test_what_jobs_stand_on_stays_when_it_is_uninstalled(
    chart: Path, api_server: ApiServer
) -> None:
    kept = {
        key
        for key, found in documents(helm(chart)).items()
        if found["metadata"].get("annotations", {}).get(KEEP) == "keep"
    }
    assert {kind for kind, _ in kept} == {"CustomResourceDefinition", "Namespace"}
    assert len(kept) == 5


def test_another_namespace_is_another_everywhere(chart: Path, api_server: ApiServer) -> None:
    text = helm(chart, namespace="elsewhere")
    assert "partita-system" not in text
    policy = documents(text)["ValidatingAdmissionPolicy", "partita-gpu-access"]
    (condition,) = policy["spec"]["matchConditions"]
    assert "'system:serviceaccount:elsewhere:partita-operator'" in condition["expression"]


def test_values_reach_operator_and_console(chart: Path, api_server: ApiServer) -> None:
    text = helm(
        chart,
        "--set=image.repository=registry.example.com/partita,image.tag=v7",
        "--set=imagePullSecrets[0].name=registry",
        "--set=monitoring.alerts=true,monitoring.labels.release=prometheus",
        "--set-json",
        f"nodeSelector={json.dumps({'pool': 'system'})}",
        "--set-json",
        f"tolerations={json.dumps([{'operator': 'Exists'}])}",
        "--set=console.replicas=0,console.resources.requests=null",
    )
    for name in ("partita-operator", "partita-console"):
        spec = documents(text)["Deployment", name]["spec"]
        assert spec["replicas"] == (0 if name == "partita-console" else 2)
        spec = spec["template"]["spec"]
        assert spec["containers"][0]["image"] == "registry.example.com/partita:v7"
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert spec["nodeSelector"] == {"pool": "system"}
        assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["resources"] == {"limits": {"memory": "384Mi"}}
    labels = documents(text)["PrometheusRule", "partita"]["metadata"]["labels"]
    assert labels == {"app.kubernetes.io/part-of": "partita", "release": "prometheus"}


async def test_the_values_of_the_page_on_installation_are_the_components_of_kustomize(
    chart: Path, tmp_path: Path, kubectl: Kubectl, installed: str
) -> None:
    page = read_page(ROOT / "docs" / "how-to" / "install.md")
    (shown,) = [step for step in page.steps if isinstance(step, File)]
    values = tmp_path / shown.name
    values.write_text(shown.text)
    text = helm(chart, "--values", str(values))
    await is_taken(kubectl, text)
    found, example = documents(text), documents(kustomize("example"))
    pod, wanted = (
        d["Deployment", "partita-operator"]["spec"]["template"]["spec"] for d in (found, example)
    )
    (container,), (other,) = pod["containers"], wanted["containers"]
    assert container["image"] == other["image"] == "registry.example.com/partita:0.1.0"
    assert container["args"] == other["args"]
    assert container["args"][-1] == "--verbose"
    assert pod["imagePullSecrets"] == wanted["imagePullSecrets"]
    assert {"name": "PARTITA_RECORD", "value": "/recordings"} in container["env"]
    # The example's certificate and its own collector are not on the page.
    variables = {e["name"]: e.get("value") for e in container["env"]}
    others = {e["name"]: e.get("value") for e in other["env"]}
    collector = "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert variables.pop(collector) == "http://otel-collector.observability:4318"
    assert others.pop(collector) == "http://collector.example:4318"
    assert others.pop("OTEL_EXPORTER_OTLP_CERTIFICATE") == "/certificates/ca.crt"
    assert variables == others
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount in other["volumeMounts"]
    assert volume in wanted["volumes"]
    policy = "NetworkPolicy", "partita-operator"
    assert found[policy]["spec"]["egress"] == example[policy]["spec"]["egress"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("replica=2", "additional properties 'replica' not allowed"),
        ("replicas=many", "/replicas"),
        ("extraArgs=--verbose", "/extraArgs"),
        ("console.route=true", "/console/host"),
        ("extraVolumes[0].emptyDir.medium=Memory", "missing property 'name'"),
    ],
)
def test_values_that_mean_nothing_are_refused(
    values: str, said: str, chart: Path, api_server: ApiServer
) -> None:
    done = run("helm", "template", "partita", chart, "--kube-version=1.36.0", f"--set={values}")
    assert done.returncode != 0
    assert said in done.stderr


def test_a_cluster_without_claims_is_refused(chart: Path, api_server: ApiServer) -> None:
    done = run("helm", "template", "partita", chart, "--kube-version=1.33.9")
    assert done.returncode != 0
    assert "requires kubeVersion: >=1.34.0" in done.stderr


def test_it_names_this_release(chart: Path, api_server: ApiServer) -> None:
    """So do the overlays, which have the same image."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == __version__


def test_its_notes_fit_the_values(chart: Path, api_server: ApiServer, installed: str) -> None:
    options = ("--dry-run=client", "--take-ownership", "--namespace=elsewhere")
    shown = []
    for value in ("replicas=0", "replicas=1", "ingress=true,console.host=a.example"):
        more = (f"--kubeconfig={api_server.kubeconfig}", f"--set=console.{value}")
        done = run("helm", "install", "partita", chart, *options, *more)
        shown.append(done.stdout)
        assert "kubectl -n elsewhere rollout status" in done.stdout, done.stderr
    assert ["port-forward service/partita-console" in said for said in shown] == [
        False,
        True,
        False,
    ]
    assert "The console: https://a.example\n" in shown[-1]
