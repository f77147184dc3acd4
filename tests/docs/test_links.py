"""Links of the pages at the root of the repository, and make targets of all pages.

Links of the pages in docs/ are checked by `test_site.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages import PAGES as ALL_PAGES
from docs.pages import ROOT, read_page

PAGES = sorted(ROOT.glob("*.md"))
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_something(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{target}#{anchor}"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_make_target_of_a_page_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in read_page(page).commands:
        for target in re.findall(r"^make (\S+)", command.text, re.MULTILINE):
            assert f"\n{target}:" in makefile, target


FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in (
        "crds",
        "docs",
        "examples",
        "manifests",
        "operator",
        "policies",
        "tests",
        "tools",
    )
    for path in (ROOT / folder).rglob("*.*")
]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_module_that_a_page_names_exists(page: Path) -> None:
    for name in re.findall(r"`([\w./]+/[\w.]+\.py|\w+\.py)`", page.read_text()):
        assert any(f"/{file}".endswith(f"/{name}") for file in FILES), name


def test_the_pages_that_are_not_generated_can_be_read() -> None:
    """Write each fact once: shorten a page if this fails."""
    docs = [page for page in ALL_PAGES if page.parent != ROOT and page.parent.name != "reference"]
    assert sum(len(page.read_text().split()) for page in [ROOT / "README.md", *docs]) < 45_000
