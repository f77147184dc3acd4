from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cluster import images
from cluster.builder import Image, build
from cluster.cluster import Cluster
from cluster.pods import finished, logs, restricted_pod
from support.api import Api

IMPORT_ALL = """
import importlib, pkgutil, sys
wrong = []
for root in ("partita", "partita_policies"):
    package = importlib.import_module(root)
    for module in pkgutil.walk_packages(package.__path__, root + "."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            wrong.append(f"{module.name} {error.name}")
print("\\n".join(sorted(wrong)))
"""

EXTRAS = {"matplotlib", "onnx", "opentelemetry", "safetensors", "torch"}
"""What only training, pictures and traces need: extras of the package, which the image lacks."""


def test_it_weighs_less_than_200_mb_and_has_no_torch(image: Image):
    assert image.size() < 200e6
    names = {path.name for layer in image.layers for path in layer.glob("opt/partita/lib/*/*/*")}
    assert {"partita", "partita_policies", "onnxruntime"} <= names
    assert not EXTRAS & names
    assert not {"pip", "hatchling", "pytest"} & names


def test_a_second_build_is_the_same_to_the_bit(
    image: Image, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Debian's part is kept: its packages may have changed since, and both need the same ones."""
    context = tmp_path / "context"  # of its own: somebody may be at work on the other
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md"):
        context.mkdir(exist_ok=True)
        shutil.copy(images.ROOT / name, context)
    for name in ("requirements", "policies", "operator", "examples", "tools"):
        shutil.copytree(images.ROOT / name, context / name)
    kept = image.archive.parent
    first = build(context, images.PARTITA)
    capsys.readouterr()
    cache = tmp_path / "cache"
    cache.mkdir()
    large = sorted(path for path in kept.iterdir() if (path / "usr" / "bin").is_dir())
    for path in large:
        (cache / path.name).symlink_to(path)
    again = build(context, images.PARTITA, cache=cache)
    said = capsys.readouterr().out
    assert "pip" in said, "nothing was built"
    assert again.digest == first.digest
    assert all((cache / path.name).is_symlink() for path in large)
    shutil.rmtree(tmp_path)


async def test_all_of_partita_can_be_imported_in_it_by_a_user_of_no_rights(
    cluster: Cluster, image: Image, api: Api, restricted: str
):
    pod = restricted_pod("importing", images.PARTITA, ["python", "-c", IMPORT_ALL])
    container = pod["spec"]["containers"][0]
    container["securityContext"]["readOnlyRootFilesystem"] = True
    del pod["spec"]["securityContext"]["runAsUser"]  # the image's own is none of root's
    (await api.post(f"/api/v1/namespaces/{restricted}/pods", pod)).ok()
    assert await finished(api, restricted, "importing") == 0
    missing = (await logs(api, restricted, "importing")).split("\n")
    assert {line.split()[1].split(".")[0] for line in missing if line} <= EXTRAS


async def test_its_command_is_found_and_says_which_version_it_is(
    cluster: Cluster, image: Image, api: Api, restricted: str
):
    pod = restricted_pod("version", images.PARTITA, [])
    container = pod["spec"]["containers"][0]
    del container["command"]
    container["args"] = ["--version"]
    (await api.post(f"/api/v1/namespaces/{restricted}/pods", pod)).ok()
    assert await finished(api, restricted, "version") == 0
    assert "0.1.0" in await logs(api, restricted, "version")
