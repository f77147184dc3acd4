"""The documentation site is built without a broken link or anchor, and has every page."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.pages import ROOT


def site(folder: Path, **settings) -> Path:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True, **settings)
    build(config)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return site(tmp_path_factory.mktemp("site"))


def test_every_link_and_anchor_of_the_pages_leads_somewhere(built: Path) -> None:
    assert "Partita" in (built / "index.html").read_text()


def test_links_to_the_repository_leave_the_site(built: Path) -> None:
    page = (built / "runbooks" / "index.html").read_text()
    assert '/blob/main/manifests/monitoring/prometheus-rules.yaml"' in page


@pytest.mark.parametrize("link", ["missing.md", "../missing.py", "page.md#missing"])
def test_a_broken_link_is_found(link, tmp_path: Path, caplog) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text(f"# Page\n\n[text]({link})\n")
    with caplog.at_level(logging.WARNING, "mkdocs"), pytest.raises(SystemExit):
        site(tmp_path / "site", docs_dir=str(docs), nav=None)
    assert link.partition("#")[2] in caplog.text
