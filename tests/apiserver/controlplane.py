"""A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager.

No kubelet or network: objects only, which is what the tests of the API need. Of the controllers
only `CONTROLLERS` run, and kube-scheduler only where a subclass asks for it.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Self

from apiserver.processes import ServerProcess, ServerProcesses, with_free_ports

__all__ = ["ACCOUNTS", "CLUSTER_NAME", "CONTROLLERS", "ControlPlane"]

CLUSTER_NAME = "partita-test"
"""The kubeconfig's cluster; the test tiers refuse any that is not named for tests."""

ACCOUNTS = {
    "partita-operator": "partita-system",
    "partita-agent": "partita-servers",
    "partita-console": "partita-system",
}
"""Service accounts of `manifests/`, by namespace: what runs as one is written into the audit log."""

CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "statefulset-controller",
)

FOLDER_PREFIX = "partita-apiserver-"

SETTLED_SECONDS = 60
"""A folder younger than this may still be without its lock."""


class ControlPlane:
    """A control plane in a folder of its own, for use as a context manager.

    Parameters
    ----------
    assets
        Folder with the binaries, see `apiserver.build.assets`.
    emulated
        The minor version of Kubernetes whose APIs and features it has, such as ``1.34``; without,
        those of its own version
        (https://kubernetes.io/docs/concepts/cluster-administration/compatibility-version/).

    Attributes
    ----------
    url
        Base URL of the API server (https, loopback).
    token
        Bearer token of a user in ``system:masters``.
    kubeconfig
        Path of a kubeconfig for that user.
    certificate
        Path of the certificate to trust.
    tokens
        Bearer tokens of `ACCOUNTS`, by name. They may what a test lets them.
    audit_log
        Path of what these did, one event (audit.k8s.io/v1) a line.

    Notes
    -----
    A subclass that has nodes says so by what it overrides: `address` and `port` where Pods reach
    the API server, `scheduler` for one that binds them, `users`, `api_server_flags`,
    `controller_flags` and `scheduler_flags`.
    """

    address = "127.0.0.1"
    port: int | None = None
    scheduler = False

    def __init__(self, assets: Path, *, emulated: str = "") -> None:
        self._assets = assets
        self._version = [f"--emulated-version={emulated}"] if emulated else []
        self._processes = ServerProcesses()
        self._api_server: list[str] = []
        self._folder = Path()
        self._lock: IO[str] | None = None
        self.url = ""
        self.token = secrets.token_hex(16)
        self._controllers_token = secrets.token_hex(16)
        self._scheduler_token = secrets.token_hex(16)
        self.tokens = {account: secrets.token_hex(16) for account in ACCOUNTS}
        self.audit_log = Path()
        self.kubeconfig = Path()
        self.certificate = Path()

    def __enter__(self) -> Self:
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self._lock = (self._folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self._start(self._folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()
        if self._lock is not None:
            self._lock.close()
            shutil.rmtree(self._folder)

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run now."""
        return self._processes.pids

    def server(self, name: str) -> ServerProcess:
        """Return one of its servers, to be killed and started again."""
        return self._processes.named(name)

    def _start(self, folder: Path) -> None:
        etcd = f"unix://{folder}/etcd.sock"
        self._run(
            "etcd",
            f"--data-dir={folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=unix://{folder}/peer.sock",
            f"--initial-advertise-peer-urls=unix://{folder}/peer.sock",
            f"--initial-cluster=default=unix://{folder}/peer.sock",
            "--log-level=warn",
            ready=(folder / "etcd.sock").exists,
        )
        tokens = folder / "tokens.csv"
        tokens.write_text(
            "".join(f'{token},{name},{name},"{group}"\n' for token, name, group in self.users())
        )
        certificates = folder / "certificates"
        self.certificate = certificates / "apiserver.crt"
        audit_policy = folder / "audit-policy.json"
        audit_policy.write_text(json.dumps(_audit_policy()))
        self.audit_log = folder / "audit.log"
        self._api_server = [
            f"--etcd-servers={etcd}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            # It refuses to publish a loopback address as an endpoint; nobody here needs one.
            "--endpoint-reconciler-type=none",
            # The API server makes itself a certificate and key there, before it reads the key
            # for service-account tokens: one pair serves both, and nothing else need make keys.
            f"--cert-dir={certificates}",
            f"--service-account-signing-key-file={certificates}/apiserver.key",
            f"--service-account-key-file={certificates}/apiserver.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={tokens}",
            "--allow-privileged",
            f"--audit-policy-file={audit_policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=10000",  # one file, whatever its size
            *self._version,
            *self.api_server_flags(),
        ]
        port = self._run_on_a_port(
            "kube-apiserver",
            *self._api_server,
            certificate=self.certificate,
            address=self.address,
            fixed_port=self.port,
        )
        self.url = f"https://{self.address}:{port}"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self.kubeconfig_of(self.token)))
        self._run_client(
            "kube-controller-manager",
            self._controllers_token,
            # Each controller acts as an account of its own, as kubeadm has it: admission knows them.
            "--use-service-account-credentials",
            *self.controller_flags(),
        )
        if self.scheduler:
            self._run_client("kube-scheduler", self._scheduler_token, *self.scheduler_flags())

    def users(self) -> list[tuple[str, str, str]]:
        """Return token, name and groups of each user there is."""
        return [
            (self.token, "partita-test", "system:masters"),
            (self._controllers_token, "system:kube-controller-manager", ""),
            (self._scheduler_token, "system:kube-scheduler", ""),
            *(
                (
                    self.tokens[account],
                    f"system:serviceaccount:{namespace}:{account}",
                    f"system:serviceaccounts,system:serviceaccounts:{namespace}",
                )
                for account, namespace in ACCOUNTS.items()
            ),
        ]

    def api_server_flags(self) -> list[str]:
        """Return what the API server is told beside where it is and what it stands on."""
        return [
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            # Their controllers do not run: no namespace would have the account that the one
            # demands, and nobody would remove the not-ready taint that the other adds to nodes.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ]

    def controller_flags(self) -> list[str]:
        """Return what the controller manager is told beside where the API server is."""
        return [f"--controllers={','.join(CONTROLLERS)}"]

    def scheduler_flags(self) -> list[str]:
        """Return what kube-scheduler is told beside where the API server is."""
        # Seldom it sees an allocation after the Pod that it has ungated. If the Pod was refused for
        # its neighbours, it is not tried again because of the allocation, but after five minutes.
        return ["--pod-max-in-unschedulable-pods-duration=10s"]

    def _binary(self, name: str) -> Path:
        return self._assets / name

    def _run(self, name: str, *arguments: str, ready: Callable[[], bool]) -> None:
        log = self._folder / f"{name}.log"
        process = ServerProcess([self._binary(name), *arguments], log=log)
        self._processes.start(process, ready)

    def _run_client(self, name: str, token: str, *arguments: str) -> None:
        """Run a part of the control plane that is a client of the API server."""
        kubeconfig, own = self._folder / f"{name}-kubeconfig", self._folder / name
        kubeconfig.write_text(json.dumps(self.kubeconfig_of(token)))
        self._run_on_a_port(
            name,
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={own}",
            "--leader-elect=false",
            *self._version,
            *arguments,
            certificate=own / f"{name}.crt",
        )

    def _run_on_a_port(
        self,
        name: str,
        *arguments: str,
        certificate: Path,
        address: str = "127.0.0.1",
        fixed_port: int | None = None,
    ) -> int:
        """Start a server that serves ``/healthz`` over TLS; return its port, a free one if any."""

        def start(port: int) -> None:
            ready = partial(_healthy, f"https://{address}:{port}/healthz", certificate, self.token)
            self._run(name, *arguments, f"--secure-port={port}", ready=ready)

        if fixed_port is not None:
            start(fixed_port)
            return fixed_port
        (port,) = with_free_ports(1, start)
        return port

    def kubeconfig_of(self, token: str) -> dict[str, object]:
        """Return a kubeconfig for the user with this token."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": CLUSTER_NAME,
                    "cluster": {"server": self.url, "certificate-authority": str(self.certificate)},
                }
            ],
            "users": [{"name": CLUSTER_NAME, "user": {"token": token}}],
            "contexts": [
                {"name": CLUSTER_NAME, "context": {"cluster": CLUSTER_NAME, "user": CLUSTER_NAME}}
            ],
            "current-context": CLUSTER_NAME,
        }


def _audit_policy() -> dict[str, object]:
    """Have each request of ours noted when it is answered, without its content."""
    users = [f"system:serviceaccount:{namespace}:{name}" for name, namespace in ACCOUNTS.items()]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    }


def _healthy(url: str, certificate: Path, token: str) -> bool:
    if not certificate.exists():
        return False
    try:
        trust = ssl.create_default_context(cafile=str(certificate))
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=trust, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ssl.SSLError, urllib.error.URLError):
        return False


def _sweep() -> None:
    """Remove the folders of control planes whose test run was killed: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < SETTLED_SECONDS:
                continue
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use, or another's
