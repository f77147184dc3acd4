"""The CRDs, printed, written and installed."""

from pathlib import Path

import yaml

CRDS = Path(__file__).parents[2] / "crds"


def test_what_is_printed_is_what_the_repository_has(invoke) -> None:
    result = invoke("crds")
    printed = {crd["metadata"]["name"]: crd for crd in yaml.safe_load_all(result.stdout)}
    kept = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in CRDS.glob("partita.dev_*")]
    assert printed == {crd["metadata"]["name"]: crd for crd in kept}


def test_a_folder_gets_one_file_a_kind(invoke, tmp_path) -> None:
    result = invoke("crds", "--directory", tmp_path / "new")
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new").iterdir()}
    assert written == {
        path.name: path.read_text(encoding="utf-8") for path in CRDS.glob("partita.dev_*")
    }
    assert sorted(Path(line).name for line in result.stdout.splitlines()) == sorted(written)


async def test_they_are_installed_once(partita) -> None:
    await partita("crds", "--install")
    second = await partita("crds", "--install")
    kinds = ("gpupartitions", "sharedgpujobs", "gpuservers", "applicationprofiles")
    assert second.stdout.splitlines() == [
        f"customresourcedefinition.apiextensions.k8s.io/{kind}.partita.dev unchanged"
        for kind in kinds
    ]


async def test_one_that_differs_is_updated(partita, api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuservers.partita.dev"
    (await api.patch(path, {"spec": {"names": {"shortNames": ["other"]}}})).ok()
    result = await partita("crds", "--install")
    assert "gpuservers.partita.dev updated" in result.stdout
    assert (await api.get(path)).ok().body["spec"]["names"]["shortNames"] == ["gsrv"]
