"""`partita train` without its extra; tests/training has the tests of what it learns."""

import importlib.util


def test_without_torch_it_tells_what_to_install(invoke, tmp_path, monkeypatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else there(name, *rest),
    )
    assert invoke("train", tmp_path / "model.npz", code=1).stderr == (
        "Error: torch is not installed: run `pip install -e '.[train]'` in a checkout of Partita\n"
    )
