"""docs/where-to-change.md leads to files that exist and have what the page names."""

from __future__ import annotations

import re

import pytest

from docs.pages import ROOT

ROW = re.compile(r"^\| (.+?) \| \[(.+?)\]\(.*? \| (.+?) \| `(.+?)` \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "where-to-change.md").read_text())


def test_the_page_has_at_least_ten_changes() -> None:
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("change", "file", "tests", "symbol"), ROWS, ids=[row[0] for row in ROWS])
def test_a_change_starts_in_a_file_that_has_the_symbol(change, file, tests, symbol) -> None:
    assert symbol in (ROOT / file).read_text()
    for folder in re.findall(r"\[(.+?)\]", tests):
        assert list((ROOT / folder).rglob("test_*.py")), folder
