"""Every command of every page does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.conftest import new_cluster
from docs.pages import NOT_RUN, PAGES, ROOT, Page, read_page
from docs.runner import run_page

TUTORIAL = ROOT / "docs" / "tutorial.md"
"""`test_tutorial.py` runs it on the cluster of the demo."""
WITH_COMMANDS = [page for page in map(read_page, PAGES) if page.steps and page.path != TUTORIAL]
OFFLINE = [page for page in WITH_COMMANDS if not page.cluster]
READING = [page for page in WITH_COMMANDS if page.cluster == "shared"]
CHANGING = [page for page in WITH_COMMANDS if page.cluster == "alone"]


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


@pytest.mark.parametrize("page", OFFLINE, ids=name)
async def test_commands_that_need_no_cluster(page, tmp_path: Path) -> None:
    await run_page(page, tmp_path, kubeconfig=tmp_path / "missing")


@pytest.mark.parametrize("page", CHANGING, ids=name)
async def test_commands_on_a_cluster_of_the_page_alone(page, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    async with new_cluster(tmp_path) as kubeconfig:
        await run_page(page, folder, kubeconfig)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("page", READING, ids=name)
async def test_commands_on_the_cluster_of_all_pages(
    page, tmp_path: Path, shared_cluster: Path
) -> None:
    await run_page(page, tmp_path, shared_cluster)


def test_every_reason_for_not_running_commands_is_used() -> None:
    pages = map(read_page, PAGES)
    assert {c.not_run for page in pages for c in page.commands} - {""} == NOT_RUN.keys()
