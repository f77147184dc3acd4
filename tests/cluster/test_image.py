from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from cluster import images
from cluster.cluster import Cluster
from cluster.images import ROOT, Image, buildah, make_image
from cluster.pods import finished, logs, restricted_pod
from docs.pages import File, read_page
from support.api import Api

IMPORT_ALL = """
import importlib, pkgutil, sys
wrong = []
for root in ("partita", "partita_policies"):
    package = importlib.import_module(root)
    for module in pkgutil.walk_packages(package.__path__, root + "."):
        if module.name.endswith(".libpartita"):
            continue  # a library in C: pkgutil takes its file for a module
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            wrong.append(f"{module.name} {error.name}")
print("\\n".join(sorted(wrong)))
"""

EXTRAS = {"matplotlib", "torch"}
"""What only training and pictures need: extras of the package, which the image lacks."""


def test_it_is_smaller_than_200_mb_and_has_no_torch(image: Image):
    files = image.files()
    assert sum(files.values()) < 200e6
    packages = {name.split("/")[5] for name in files if "/site-packages/" in name}
    assert {"partita", "partita_policies", "numpy"} <= packages
    assert not EXTRAS & packages
    assert not {"pip", "hatchling", "pytest"} & packages
    assert "opt/partita/lib/python3.13/site-packages/partita/agent/main.py" in files


def test_a_second_build_is_the_same_to_the_bit(image: Image, tmp_path: Path):
    """Debian's part is not built again: its packages may have changed since."""
    base = "localhost/partita-base:test"
    buildah("build", "--layers", "--timestamp", "0", "--target", "base", "--tag", base, images.ROOT)
    context = tmp_path / "context"
    context.mkdir()
    for name in (".dockerignore", "hatch_build.py", "pyproject.toml", "README.md"):
        shutil.copy(images.ROOT / name, context)
    for name in ("requirements", "policies", "operator", "examples", "tools"):
        shutil.copytree(images.ROOT / name, context / name)
    _, stage, rest = (images.ROOT / "Dockerfile").read_text().partition("FROM base AS ")
    (context / "Dockerfile").write_text(f"FROM {base} AS base\n{stage}{rest}")
    name, archive = "docker.io/library/partita:again", tmp_path / "again.tar"
    # A build of another name and of other times, in which nothing is taken from the cache.
    again = make_image(context, "--no-cache", IMAGE=name, ARCHIVE=str(archive))
    assert "Using cache" not in again
    assert Image(archive).identity == image.identity


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


def test_the_page_s_recipe_adds_a_policy_to_the_image(image: Image, tmp_path: Path):
    page = ROOT / "docs" / "how-to" / "choose-a-policy.md"
    (recipe,) = [step for step in read_page(page).steps if isinstance(step, File)]
    (tmp_path / recipe.name).write_text(recipe.text)
    package = tmp_path / "my-policy"
    package.mkdir()
    text = (ROOT / "docs" / "writing-a-policy.md").read_text()
    code, declared = (
        re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0]
        for language in ("python", "toml")
    )
    (package / "my_package.py").write_text(code)
    (package / "pyproject.toml").write_text(
        f'[project]\nname = "my-policy"\nversion = "1.0"\n{declared}'
    )
    name = "localhost/partita-with-policy:test"
    # pip reads it like a secret of `make image`: what the machine's proxy needs.
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\ncert = /machine/certificates.crt\n")
    certificates = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
    buildah(
        *("build", "--layers", "--tag", name),
        *("--volume", f"{settings}:/etc/pip.conf:ro"),
        *("--volume", f"{certificates}:/machine/certificates.crt:ro"),
        tmp_path,
    )
    container = buildah("from", name)
    try:
        listed = buildah("run", container, "--", "partita", "policies", "--output", "json")
    finally:
        buildah("rm", container)
    assert '"largest-first"' in listed
    assert '"fifo"' in listed
