"""CustomResourceDefinitions of other projects, taken from their Go modules; none is kept here.

`go mod download` fetches a module from the Go module proxy and keeps it in Go's own cache, where
the next run finds it. Each module is pinned by version and by the checksum that a `go.sum` has.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEFINITIONS", "Module", "download"]

DOWNLOAD_SECONDS = 120


@dataclass(frozen=True)
class Module:
    """A Go module and the files of its definitions.

    Attributes
    ----------
    path
        As `go.mod` files name it.
    version
        Its release.
    checksum
        Hash of its files, as `go.sum` writes it (https://go.dev/ref/mod#go-sum-files).
    files
        Paths of the definitions inside the module.
    """

    path: str
    version: str
    checksum: str
    files: tuple[str, ...]


DEFINITIONS = (
    Module(
        "sigs.k8s.io/jobset",
        "v0.12.0",
        "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
        ("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
    ),
    Module(
        "github.com/kubeflow/training-operator",
        "v1.9.3",
        "h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
        ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
    ),
    Module(
        "github.com/kubeflow/trainer/v2",
        "v2.2.1",
        "h1:GsM80cgxnLnd8j8+lrX/Dpcvw7DYqpxkL0ni4XA/U7Y=",
        (
            "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
            "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        ),
    ),
    Module(
        "github.com/ray-project/kuberay/ray-operator",
        "v1.6.0",
        "h1:1hs7Di2U/vm09ot7MIU8jUqEo7gHDc4gkbv1eFvqCsQ=",
        ("config/crd/bases/ray.io_rayclusters.yaml",),
    ),
    Module(
        "github.com/argoproj/argo-workflows/v3",
        "v3.7.14",
        "h1:ptbGB8ljmDgV3PlX0dEMfHwuq1P9DklQ5Hi4XzHBVLA=",
        ("manifests/base/crds/full/argoproj.io_workflows.yaml",),
    ),
    Module(
        "github.com/kserve/kserve",
        "v0.17.0",
        "h1:IaynaBFzVQz1Xyrw5n3ncqzd5Y7L1RkO+YWvVwwtMQE=",
        ("config/crd/full/serving.kserve.io_inferenceservices.yaml",),
    ),
)
"""Of the kinds in `examples/workloads` that Kubernetes does not have itself, but for Notebook: no
release of its module is on the Go module proxy."""


def download(module: Module) -> list[Path]:
    """Return the definitions' files; the module is downloaded where Go's cache lacks it.

    Raises
    ------
    AssertionError
        It cannot be downloaded, or has another checksum.
    """
    with tempfile.TemporaryDirectory() as outside:  # of any module
        done = subprocess.run(
            ["go", "mod", "download", "-json", f"{module.path}@{module.version}"],
            cwd=outside,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_SECONDS,
        )
    found = json.loads(done.stdout or "{}")
    assert found.get("Sum") == module.checksum, found or done.stderr
    return [Path(found["Dir"]) / file for file in module.files]
