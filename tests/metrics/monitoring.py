"""The files of manifests/monitoring, as Prometheus and Grafana take them."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["MONITORING", "ROOT", "alerts", "dashboard", "names_in", "rules"]

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "manifests" / "monitoring"


def rules() -> dict[str, Any]:
    """The rule file that the PrometheusRule stands for."""
    manifest = yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text())
    spec: dict[str, Any] = manifest["spec"]
    return spec


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}


def dashboard() -> dict[str, Any]:
    """Grafana's dashboard."""
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def names_in(expression: str) -> set[str]:
    """The names of our series in a PromQL expression."""
    return set(re.findall(r"\bpartita_\w+", expression))
