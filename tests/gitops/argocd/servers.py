"""Argo CD's servers beside a control plane, and a Git repository that they read.

A repository server, an application controller, an ApplicationSet controller and a Redis, each a
process of this machine. No Dex, no API server: nobody logs in.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml

from apiserver.binaries import ARGOCD
from apiserver.build import sources
from apiserver.controlplane import ControlPlane
from apiserver.processes import ServerProcess, ServerProcesses, with_free_ports
from gitops.lua import CONFIG_MAP

__all__ = ["CONFIGURATION", "NAMESPACE", "ArgoCD", "Repository", "resource_definitions"]

Body = dict[str, Any]

NAMESPACE = "argocd"
CONFIGURATION = (
    "argocd-rbac-cm",
    "argocd-gpg-keys-cm",
    "argocd-tls-certs-cm",
    "argocd-ssh-known-hosts-cm",
)
"""ConfigMaps that Argo CD asks for and that may be empty."""


@functools.cache
def resource_definitions() -> list[Body]:
    """Return Argo CD's CRDs, from the sources that its binary was built from."""
    (module,) = ARGOCD.modules
    folder = sources(module) / "manifests" / "crds"
    return [
        yaml.safe_load((folder / f"{name}-crd.yaml").read_text())
        for name in ("application", "applicationset", "appproject")
    ]


class Repository:
    """A Git repository in a folder, and the only one who commits to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        """What Argo CD reads it by."""
        return f"file://{self.folder}"

    @property
    def head(self) -> str:
        """The newest commit."""
        return self._git("rev-parse", "HEAD").strip()

    def commit(self, message: str) -> str:
        """Commit all that has changed; return the commit."""
        self._git("add", "--all")
        self._git("commit", "--quiet", f"--message={message}")
        return self.head

    def revert(self) -> str:
        """Commit the undoing of the last commit."""
        self._git("revert", "--no-edit", "HEAD")
        return self.head

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=test", "-c", "user.email=test@example.com", *arguments],
            cwd=self.folder,
            # Neither the user's settings nor a repository around this one.
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder.parent),
                "GIT_CONFIG_NOSYSTEM": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout


class ArgoCD:
    """Argo CD for one control plane, for use as a context manager.

    Parameters
    ----------
    binary
        Argo CD's program.
    tools
        Folder with the `kustomize` that it calls.
    folder
        Where it keeps its files and logs.
    """

    def __init__(self, plane: ControlPlane, binary: Path, tools: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._kubeconfig = plane.kubeconfig
        self._processes = ServerProcesses()
        for name in ("tls", "ssh", "home", "tmp", "bin"):
            (folder / name).mkdir()
        (folder / "ssh" / "ssh_known_hosts").touch()
        self._environment = {
            "PATH": f"{folder / 'bin'}:{tools}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "KUBECONFIG": str(plane.kubeconfig),
            "ARGOCD_FAKE_IN_CLUSTER": "true",  # the cluster it manages is the kubeconfig's
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_TLS_DATA_PATH": str(folder / "tls"),
            "ARGOCD_SSH_DATA_PATH": str(folder / "ssh"),
        }

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()

    def failure_report(self) -> list[tuple[str, str]]:
        """Return the end of each server's log."""
        return [
            (file.name, "\n".join(file.read_text(errors="replace").splitlines()[-60:]))
            for file in sorted(self._folder.glob("*.log"))
        ]

    def admin(self, *arguments: str) -> str:
        """Run `argocd admin settings` on our ConfigMap; return what it printed."""
        done = subprocess.run(
            [
                self._role("argocd"),
                "admin",
                "settings",
                f"--argocd-cm-path={CONFIG_MAP}",
                *arguments,
            ],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def _start(self) -> None:
        common = [
            f"--kubeconfig={self._kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--repo-server-plaintext",
        ]

        def redis(port: int) -> None:
            where = ["--port", str(port), "--bind", "127.0.0.1"]
            command = ["redis-server", *where, "--save", "", "--dir", str(self._folder)]
            self._run(command, listens_on=port)

        (port,) = with_free_ports(1, redis)
        cache = f"--redis=127.0.0.1:{port}"

        def repo_server(port: int, metrics: int) -> None:
            command = [
                self._role("argocd-repo-server"),
                "--disable-tls",
                "--address=127.0.0.1",
                f"--port={port}",
                "--metrics-address=127.0.0.1",
                f"--metrics-port={metrics}",
                "--revision-cache-expiration=1s",
                cache,
            ]
            self._run(command, listens_on=port)

        repositories, _ = with_free_ports(2, repo_server)

        def application_controller(metrics: int) -> None:
            command = [
                self._role("argocd-application-controller"),
                *common,
                f"--repo-server=127.0.0.1:{repositories}",
                "--app-resync=10",
                "--app-resync-jitter=0",
                "--persist-resource-health",
                # After a sync its cache of the cluster is late. What differs for longer is drift.
                "--self-heal-timeout-seconds=5",
                "--self-heal-backoff-timeout-seconds=0",  # else the timeout has no effect
                f"--metrics-port={metrics}",  # on all interfaces: see `gitops.argocd.loopback`
                cache,
            ]
            self._run(command, listens_on=metrics)

        with_free_ports(1, application_controller)

        def applicationset_controller(probes: int, webhook: int) -> None:
            command = [
                self._role("argocd-applicationset-controller"),
                *common,
                f"--argocd-repo-server=127.0.0.1:{repositories}",
                "--metrics-addr=127.0.0.1:0",
                f"--probe-addr=127.0.0.1:{probes}",
                f"--webhook-addr=127.0.0.1:{webhook}",
            ]
            self._run(command, listens_on=probes)

        with_free_ports(2, applicationset_controller)

    def _role(self, name: str) -> str:
        """Return a path by which the one program is the server of this name."""
        link = self._folder / "bin" / name
        with contextlib.suppress(FileExistsError):
            link.symlink_to(self._binary)
        return str(link)

    def _run(self, command: Sequence[str], *, listens_on: int) -> None:
        name = Path(command[0]).name
        environment = [f"{key}={value}" for key, value in self._environment.items()]
        found = shutil.which("env") or "/usr/bin/env"
        process = ServerProcess(
            [found, "-i", *environment, *command], log=self._folder / f"{name}.log"
        )
        process.name = name
        self._processes.start(process, partial(_listens, listens_on))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
