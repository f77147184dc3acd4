from pathlib import Path

import orjson
import pytest

from partita.validation.builtin_schemas import compiled_schemas, generate, schemas


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    schemas.cache_clear()
    yield tmp_path
    schemas.cache_clear()


def test_are_kept_in_the_cache_and_read_from_there(cache: Path):
    made = schemas()
    (file,) = (cache / "partita").iterdir()
    assert orjson.loads(file.read_bytes()) == made == generate()
    file.write_bytes(orjson.dumps({"V1Pod": {}}))
    schemas.cache_clear()
    assert schemas() == {"V1Pod": {}}


def test_are_made_anew_from_a_broken_cache(cache: Path):
    made = schemas()
    (file,) = (cache / "partita").iterdir()
    file.write_bytes(b'{"cut short')
    schemas.cache_clear()
    assert schemas() == made
    assert orjson.loads(file.read_bytes()) == made


def test_do_without_a_cache_that_cannot_be_written(cache: Path):
    (cache / "partita").write_text("a file where the folder should be")
    assert "V1Pod" in schemas()


def test_every_served_builtin_kind_compiles():
    assert {"Pod", "Namespace", "Lease"} <= compiled_schemas().keys()


def test_schemas_may_refer_to_themselves():
    crd = compiled_schemas()["CustomResourceDefinition"]
    version = crd.child("spec").child("versions").items
    schema = version.child("schema").child("openAPIV3Schema")
    assert schema.child("properties").child("any") is schema
