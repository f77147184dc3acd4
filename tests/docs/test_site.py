"""The documentation site is built without a broken link or anchor, and has every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.pages import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_every_link_and_anchor_of_the_pages_leads_somewhere(built: Path) -> None:
    assert "Partita" in (built / "index.html").read_text()


def test_links_to_the_repository_leave_the_site(built: Path) -> None:
    page = (built / "runbooks" / "index.html").read_text()
    assert '/blob/main/manifests/monitoring/prometheus-rules.yaml"' in page
