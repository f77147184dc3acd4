"""Make the Helm chart from the output of kustomize; run by `make chart`.

    kubectl kustomize manifests/helm | python tools/chart.py build/chart/partita

The objects of the chart are those of `manifests/base`, `manifests/limits`, `manifests/monitoring`
and the components that publish the console; some fields become values. `manifests/helm` contains
the files that only Helm needs.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from partita import __version__

__all__ = ["main", "repository", "templates", "write"]

ROOT = Path(__file__).parents[1]
NAMESPACE = "partita-system"
KEPT = {"helm.sh/resource-policy": "keep"}
"""Prevents that Helm deletes an object: with the CRDs all partitions and jobs would be deleted."""
IMAGE = "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
BRACES = '{{ "{{" }}'
"""What Helm turns into the braces of another template language, such as that of Prometheus."""
SECTIONS = {"partita-operator": "", "partita-console": "console."}
"""Prefix of the values of each Deployment."""
LIMITS = "partita-limits"
"""Name of the objects of `manifests/limits`, which need a kind that not all clusters serve."""
SERVED = '.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"'
SWITCHES = {
    "PodMonitor": "monitoring.podMonitors",
    "PrometheusRule": "monitoring.alerts",
    "ConfigMap": "monitoring.dashboard",
    "Ingress": "console.ingress",
    "HTTPRoute": "console.route",
}
"""Values that add the objects of a kind, which not all clusters can use."""
HOST = "gpus.example.com"
"""Address of the console in `manifests/components`."""
SIGN_IN = "sign-in"
"""Container of `manifests/components/console-oidc`, and its port."""
SIGN_IN_PORT = '{{ ternary "sign-in" "console" .Values.console.oidc }}'
IF_SIGN_IN, END = "@if console.oidc@", "@end@"
"""Placeholders around what a value adds to an object: items of a list, or keys."""
LABELS = """\
  labels:
{{- with .Values.monitoring.labels }}
{{ toYaml . | indent 4 }}
{{- end }}
"""
JSON = re.compile(r"'?@([\w.]+)@'?")
"""Placeholder for a value that is not a string."""
OPTIONAL = re.compile(r"^( *)(\w+): '?@([\w.]+)\?@'?\n", re.MULTILINE)
"""Placeholder for a field that is left out if the value is empty."""
MORE = re.compile(r"^( *)- '?@(\w+)\+@'?\n", re.MULTILINE)
"""Placeholder for further items of a list."""
IF = re.compile(r"^ *(?:- )?'@if ([\w.]+)@'(?:: null)?\n", re.MULTILINE)
ENDED = re.compile(r"^ *(?:- )?'@end@'(?:: null)?\n", re.MULTILINE)


def main() -> int:
    """Write the chart of the objects on stdin to the folder that is given as argument."""
    (folder,) = map(Path, sys.argv[1:])
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, sys.stdin.read())
    print(folder)
    return 0


def write(folder: Path, rendered: str) -> None:
    """Write the chart of rendered objects to a new folder."""
    only_input = shutil.ignore_patterns("kustomization.yaml")
    shutil.copytree(ROOT / "manifests" / "helm", folder, ignore=only_input)
    url = repository()
    about = yaml.safe_dump(
        {"version": __version__, "appVersion": __version__, "home": url, "sources": [url]}
    )
    with (folder / "Chart.yaml").open("a", encoding="utf-8") as file:
        file.write(about)
    for name, text in templates(list(yaml.safe_load_all(rendered))).items():
        (folder / "templates" / name).write_text(text, encoding="utf-8")


def repository() -> str:
    """Return the address of the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["urls"]["Repository"])


def templates(documents: list[dict[str, Any]]) -> dict[str, str]:
    """Return the text of each of Helm's templates, by file name."""
    found: dict[str, str] = {}
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind == "Namespace" and name == NAMESPACE:
            continue  # `helm install --create-namespace` creates it
        if kind in {"Namespace", "CustomResourceDefinition"}:
            document["metadata"].setdefault("annotations", {}).update(KEPT)
        if kind == "Deployment":
            _parametrise(document["spec"], SECTIONS[name])
        if kind == "NetworkPolicy" and name == "partita-operator":
            document["spec"]["egress"].append("@extraEgress+@")
        if name == "partita-console":
            _parametrise_address(kind, document)
        text = yaml.safe_dump(document, sort_keys=False, width=10_000, allow_unicode=True)
        text = text.replace("{{", BRACES).replace("@image@", IMAGE).replace(HOST, "@console.host@")
        if kind in {"Service", "NetworkPolicy"}:
            text = text.replace(SIGN_IN, SIGN_IN_PORT)
        text = text.replace(f" {NAMESPACE}\n", " '{{ .Release.Namespace }}'\n")
        text = text.replace(NAMESPACE, "{{ .Release.Namespace }}")
        text = OPTIONAL.sub(r"{{- with .Values.\3 }}\n\1\2: {{ toJson . }}\n{{- end }}\n", text)
        text = MORE.sub(r"{{- range .Values.\2 }}\n\1- {{ toJson . }}\n{{- end }}\n", text)
        text = IF.sub(r"{{- if .Values.\1 }}\n", text)
        text = ENDED.sub("{{- end }}\n", text)
        text = JSON.sub(r"{{ toJson .Values.\1 }}", text)
        if kind in SWITCHES:
            text = text.replace("  labels:\n", LABELS, 1)
            text = f"{{{{- if .Values.{SWITCHES[kind]} }}}}\n{text}{{{{- end }}}}\n"
        if name == LIMITS:
            text = f"{{{{- if {SERVED} }}}}\n{text}{{{{- end }}}}\n"
        found[f"{kind}-{name}.yaml".lower()] = text
    return found


def _parametrise(spec: dict[str, Any], section: str) -> None:
    spec["replicas"] = f"@{section}replicas@"
    pod = spec["template"]["spec"]
    if "topologySpreadConstraints" in pod:
        pod["topologySpreadConstraints"] = "@topologySpreadConstraints@"
    for name in ("nodeSelector", "tolerations", "imagePullSecrets"):
        pod[name] = f"@{name}?@"
    container = pod["containers"][0]
    container["image"] = "@image@"
    container["resources"] = f"@{section}resources@"
    if not section:
        container["args"].append("@extraArgs+@")
        container["env"].append("@extraEnv+@")
        container["volumeMounts"] = "@extraVolumeMounts?@"
        pod["volumes"] = "@extraVolumes?@"


def _parametrise_address(kind: str, document: dict[str, Any]) -> None:
    """Make values of what publishes the console, and of the sign-in before it."""
    spec = document.get("spec", {})
    match kind:
        case "Ingress":
            document["spec"] = {"ingressClassName": "@console.ingressClass?@", **spec}
        case "HTTPRoute":
            spec["parentRefs"] = ["@console.gateway@"]
        case "Deployment":
            pod = spec["template"]["spec"]
            console, sign_in = pod["containers"]
            pod["containers"] = [console, IF_SIGN_IN, sign_in, END]
        case "NetworkPolicy":
            ingress, egress = spec["policyTypes"]
            spec["policyTypes"] = [ingress, IF_SIGN_IN, egress, END]
            document["spec"] = spec | {IF_SIGN_IN: None, "egress": spec.pop("egress"), END: None}
        case _:
            pass


if __name__ == "__main__":
    sys.exit(main())
