"""What the tests' servers and tools are built from: Go modules, pinned by ``go.sum``.

`ALL` has them in sets that are built, kept and found together; `apiserver.build` says how.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ALL",
    "ARGOCD",
    "CONTROL_PLANE",
    "COSIGN",
    "GATEWAY_API",
    "KUEUE",
    "MANIFESTS",
    "NODE",
    "PROMTOOL",
    "Binaries",
    "BuildError",
    "Module",
]

HERE = Path(__file__).resolve().parent


class BuildError(Exception):
    """The binaries cannot be built here; the message says what to do about it."""


@dataclass(frozen=True)
class Module:
    """One Go module to build.

    Attributes
    ----------
    folder
        Where its ``go.mod`` and ``go.sum`` are.
    packages
        The packages to build, and what each becomes.
    version_of
        The module that they are of, as ``go.mod`` requires it.
    stamps
        Variables that its releases are told their version by, as the linker's ``-X`` wants them.
    tags
        Build tags.
    """

    folder: Path
    packages: Mapping[str, str]
    version_of: str
    stamps: tuple[str, ...] = ()
    tags: str = ""

    @property
    def version(self) -> str:
        """The version that ``go.mod`` requires of the module that is built."""
        return self._said(rf"^\s*{re.escape(self.version_of)} (v\S+)", self.version_of)

    @property
    def go(self) -> tuple[int, ...]:
        """The version of Go that ``go.mod`` asks for."""
        return tuple(map(int, self._said(r"^go (\d+(?:\.\d+)+)$", "go").split(".")))

    @property
    def ldflags(self) -> str:
        """Linker flags: stripped, and told its version."""
        number = self.version.removeprefix("v")
        major, minor = number.split(".")[:2]
        told = (stamp.format(number=number, major=major, minor=minor) for stamp in self.stamps)
        return " ".join(["-s -w", *(f"-X {stamp}" for stamp in told)])

    def _said(self, line: str, what: str) -> str:
        path = self.folder / "go.mod"
        found = re.search(line, path.read_text(), re.MULTILINE)
        if found is None:
            raise BuildError(f"{path} says nothing of {what}.")
        return found[1]


@dataclass(frozen=True)
class Binaries:
    """Servers or tools that are built, kept and found together.

    Attributes
    ----------
    name
        By which one asks for them, and of their folder in the cache.
    title
        What they are, for messages.
    target
        The first of make's targets that needs them.
    variable
        Environment variable that names a folder of ready ones.
    modules
        Where they come from.
    """

    name: str
    title: str
    target: str
    variable: str
    modules: tuple[Module, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The binaries' names."""
        return tuple(name for module in self.modules for name in module.packages.values())

    @property
    def newest(self) -> Module:
        """The module that asks for the newest Go."""
        return max(self.modules, key=lambda module: module.go)


def _kubernetes(*names: str) -> Module:
    version = "k8s.io/component-base/version"
    return Module(
        folder=HERE / "kubernetes",
        packages={f"k8s.io/kubernetes/cmd/{name}": name for name in names},
        version_of="k8s.io/kubernetes",
        stamps=(
            f"{version}.gitVersion=v{{number}}",
            f"{version}.gitMajor={{major}}",
            f"{version}.gitMinor={{minor}}",
        ),
    )


CONTROL_PLANE = Binaries(
    name="apiserver",
    title="test control plane",
    target="test-apiserver",
    variable="KUBEBUILDER_ASSETS",
    modules=(
        Module(
            folder=HERE / "etcd",
            packages={"go.etcd.io/etcd/server/v3": "etcd"},
            version_of="go.etcd.io/etcd/server/v3",
        ),
        _kubernetes("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    ),
)
"""What objects need, and the scheduler; the variable is that of controller-runtime's envtest, which
brings no kube-controller-manager and no kube-scheduler."""

CONTAINERD = "github.com/containerd/containerd/v2"

NODE = Binaries(
    name="node",
    title="test node",
    target="test-cluster",
    variable="PARTITA_NODE_ASSETS",
    modules=(
        Module(
            folder=HERE / "containerd",
            packages={
                f"{CONTAINERD}/cmd/{name}": name
                for name in ("containerd", "containerd-shim-runc-v2", "ctr")
            },
            version_of=CONTAINERD,
            stamps=(f"{CONTAINERD}/version.Version=v{{number}}",),
            # Snapshotters that need headers of file systems, and are not used.
            tags="no_btrfs no_zfs no_devmapper no_aufs",
        ),
        _kubernetes("kubelet"),
    ),
)
"""What Pods need beside the control plane, to run."""


def _manifest_tool(name: str, package: str, module: str) -> Module:
    return Module(folder=HERE / "manifests", packages={package: name}, version_of=module)


KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5"
HELM = "helm.sh/helm/v3"

MANIFESTS = Binaries(
    name="manifests",
    title="tools that read manifests",
    target="test-apiserver",
    variable="PARTITA_MANIFEST_ASSETS",
    modules=(
        _manifest_tool("kustomize", KUSTOMIZE, KUSTOMIZE),
        _manifest_tool("helm", f"{HELM}/cmd/helm", HELM),
    ),
)
"""What renders `manifests/`."""


def _single(name: str, title: str, target: str, package: str, module: str, **more: Any) -> Binaries:
    """Return a set of one program, which has the name of the set."""
    built = Module(HERE / name, {package: name}, module, **more)
    return Binaries(name, title, target, f"PARTITA_{name.upper()}_ASSETS", (built,))


PROMETHEUS = "github.com/prometheus/prometheus"

PROMTOOL = _single(
    *("promtool", "promtool", "test-alerts", f"{PROMETHEUS}/cmd/promtool", PROMETHEUS),
    tags="remove_all_sd",  # rules need no service discovery, which is most of it
)
"""What reads Prometheus rules and runs their tests."""

ARGO_CD = "github.com/argoproj/argo-cd/v3"

# One program; the name that it is started under says which of its servers it is.
ARGOCD = _single(
    *("argocd", "Argo CD", "test-gitops", f"{ARGO_CD}/cmd", ARGO_CD),
    stamps=(f"{ARGO_CD}/common.version={{number}}",),
)
"""What brings a Git repository into a cluster. 3.2.11 is the newest that compiles as a dependency:
3.2.12 does not, 3.3 needs a replaced module of its own tree."""

KUEUE_MODULE = "sigs.k8s.io/kueue"

KUEUE = _single(
    *("kueue", "Kueue", "test-kueue", f"{KUEUE_MODULE}/cmd/kueue", KUEUE_MODULE),
    stamps=(f"{KUEUE_MODULE}/pkg/version.GitVersion=v{{number}}",),
)
"""What admits workloads before they are scheduled. `go.sum` begins with Kueue's own."""

SIGSTORE = "github.com/sigstore/cosign/v3"

COSIGN = _single("cosign", "cosign", "test-release", f"{SIGSTORE}/cmd/cosign", SIGSTORE)
"""What verifies signatures."""

GATEWAY_API = Module(HERE / "gateway", {}, "sigs.k8s.io/gateway-api")
"""What has the CRD of an HTTPRoute; the newest that Go 1.26 takes."""

ALL = (CONTROL_PLANE, MANIFESTS, NODE, PROMTOOL, ARGOCD, KUEUE, COSIGN)
