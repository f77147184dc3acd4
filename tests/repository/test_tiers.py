"""`tools/tiers.py`: its table names what exists, and a change runs the tiers that it can break."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    """Import the script: `tools/` is not on the path of the tests."""
    spec = importlib.util.spec_from_file_location("tiers", ROOT / "tools" / "tiers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiers = load()
SMOKE = "test-cluster ARGS=--smoke cluster"
MAKEFILE = (ROOT / "Makefile").read_text()


def target(name: str) -> str:
    return name.partition(" ")[0]


def test_every_path_of_the_table_exists():
    paths = [path for paths in tiers.WHOLE.values() for path in paths]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_all_tiers_are_those_of_the_makefile_that_need_no_gpu():
    made = set(re.findall(r"^(test-[a-z]*):", MAKEFILE, re.MULTILINE))
    assert {target(tier) for tier in tiers.ALL} == made - {"test-gpu", "test-all"}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ("docs/tutorial.md", ["test-apiserver ARGS=--smoke conformance", SMOKE]),
        (
            "operator/partita/agent/main.py",
            ["test-apiserver ARGS=--smoke conformance", "test-cluster"],
        ),
        ("crds/partita.dev_gpuservers.yaml", ["test-apiserver", SMOKE]),
        ("Dockerfile.md", ["test-apiserver ARGS=--smoke conformance", SMOKE]),
    ],
)
def test_a_change_runs_the_tiers_that_it_can_break(changed: str, found: list[str]):
    assert tiers.targets([changed]) == found


def test_each_tier_of_the_table_is_a_target_that_its_paths_choose():
    for tier, paths in tiers.WHOLE.items():
        found = tiers.targets([f"{paths[0]}/file"])
        if tier == "conformance":
            assert "test-apiserver" in found
        else:
            assert any(
                name in {f"test-{tier}", f"test-{tier} ARGS={tiers.CHAOS}"} for name in found
            )
