"""Kueue beside a control plane: its controller manager as a process of this machine.

Its objects and its settings come from the sources that its binary was built from, rendered by
`kustomize`. Its webhooks are called at the cluster IP of its Service, which is a loopback address
here.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import yaml

from apiserver.binaries import KUEUE
from apiserver.build import sources
from apiserver.processes import ServerProcess, ServerProcesses, free_port
from kube_scheduler.plane import WEBHOOK_ADDRESS, SchedulingControlPlane

__all__ = ["Kueue"]

Body = dict[str, Any]

NAMESPACE = "kueue-system"
CONFIGURATION = "controller_manager_config.yaml"
"""The file in a ConfigMap of the release that has the manager's settings."""
WEBHOOKS = "kueue-webhook-service"
SECRET = "kueue-webhook-server-cert"
NEEDED = {
    "Namespace",
    "CustomResourceDefinition",
    "Secret",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
"""Kinds of the release that are needed: no Deployment and, for an administrator, no rights."""


def release(kustomize: Path) -> list[Body]:
    """Return the objects of Kueue's release."""
    (module,) = KUEUE.modules
    folder = sources(module) / "config" / "default"
    done = subprocess.run(
        [kustomize / "kustomize", "build", folder], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


class Kueue:
    """Kueue for one control plane, for use as a context manager.

    Parameters
    ----------
    kubectl
        The program that creates its objects.
    binary
        Its program.
    tools
        Folder with `kustomize`.
    folder
        Where it keeps its files and its log.
    settings
        What its configuration has instead of the release's, by field of the first level.
    """

    def __init__(
        self,
        plane: SchedulingControlPlane,
        kubectl: Path,
        binary: Path,
        tools: Path,
        folder: Path,
        settings: Body,
    ) -> None:
        self._plane = plane
        self._kubectl = kubectl
        self._program = binary
        self._tools = tools
        self._folder = folder
        self._settings = settings
        self._processes = ServerProcesses()
        self._webhook_port, self._probe_port = free_port(), free_port()
        self._certificates = folder / "certificates"

    def __enter__(self) -> Self:
        objects = release(self._tools)
        self._install(body for body in objects if body["kind"] in NEEDED)
        (settings,) = (
            body["data"][CONFIGURATION] for body in objects if CONFIGURATION in body.get("data", {})
        )
        configuration = self._folder / "configuration.yaml"
        configuration.write_text(json.dumps(self._configuration(yaml.safe_load(settings))))
        process = ServerProcess(
            [
                self._program,
                f"--config={configuration}",
                f"--kubeconfig={self._plane.kubeconfig}",
                "--zap-log-level=info",
            ],
            log=self._folder / "kueue.log",
        )
        try:
            self._processes.start(process, self._is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()

    def failure_report(self) -> list[tuple[str, str]]:
        """Return the last lines of its log."""
        return [("Kueue", self._processes.tails(15))]

    @property
    def pid(self) -> int:
        """The id of its process."""
        (pid,) = self._processes.pids
        return pid

    def _install(self, needed: Iterable[Body]) -> None:
        objects = [self._directed(body) for body in needed]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": WEBHOOKS, "namespace": NAMESPACE},
            "spec": {"clusterIP": WEBHOOK_ADDRESS, "ports": [{"port": self._webhook_port}]},
        }
        text = "\n---\n".join(json.dumps(body) for body in [*objects, service])
        self._run_kubectl("apply", "--server-side", "--filename=-", stdin=text)

    def _run_kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = [self._kubectl, f"--kubeconfig={self._plane.kubeconfig}"]
        done = subprocess.run(
            [*command, f"--cache-dir={self._folder}/cache", *arguments],
            input=stdin,
            text=True,
            check=True,
            capture_output=True,
        )
        return done.stdout

    def _directed(self, body: Body) -> Body:
        """Have the API server call webhooks at the port where this Kueue serves them."""
        conversion = body.get("spec", {}).get("conversion", {}).get("webhook")
        for webhook in [*body.get("webhooks", ()), *([conversion] if conversion else ())]:
            webhook["clientConfig"]["service"]["port"] = self._webhook_port
        return body

    def _configuration(self, released: Body) -> Body:
        return {
            **released,
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._probe_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": WEBHOOK_ADDRESS,
                "port": self._webhook_port,
                "certDir": str(self._certificates),
            },
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": WEBHOOKS,
                "webhookSecretName": SECRET,
            },
            "leaderElection": {"leaderElect": False},
            **self._settings,
        }

    def _mount_certificates(self) -> bool:
        """Write the Secret that Kueue fills into files, as kubelet does; say whether it is there.

        Kueue writes certificates into a Secret, and waits until kubelet has mounted it.
        """
        if self._certificates.exists():
            return True
        text = self._run_kubectl("get", "secret", SECRET, f"--namespace={NAMESPACE}", "-ojson")
        data = json.loads(text).get("data") or {}
        if "tls.crt" not in data:
            return False
        self._certificates.mkdir()
        for name, content in data.items():
            (self._certificates / name).write_bytes(base64.b64decode(content))
        return True

    def _is_ready(self) -> bool:
        if not self._mount_certificates():
            return False
        try:
            url = f"http://127.0.0.1:{self._probe_port}/readyz"
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
