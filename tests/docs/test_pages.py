"""Every command of every page does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.conftest import new_cluster
from docs.pages import PAGES, ROOT, Page, read_page
from docs.runner import run_page

OTHERS = {
    "tutorial.md",
    "policies.md",
    "writing-a-policy.md",
    "choose-a-policy.md",
    "roll-out-a-policy.md",
}
WITH_COMMANDS = [
    page for page in map(read_page, PAGES) if page.steps and page.path.name not in OTHERS
]
OFFLINE = [page for page in WITH_COMMANDS if not page.cluster]
RUNBOOKS = [page for page in WITH_COMMANDS if page.path.parent.name == "runbooks" and page.cluster]
ON_CLUSTER = [page for page in WITH_COMMANDS if page not in OFFLINE + RUNBOOKS]


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


@pytest.mark.parametrize("page", OFFLINE, ids=name)
async def test_commands_that_need_no_cluster(page, tmp_path: Path) -> None:
    await run_page(page, tmp_path, kubeconfig=tmp_path / "missing")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", ON_CLUSTER, ids=name)
async def test_commands_on_a_cluster_of_the_page_alone(page, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    async with new_cluster(tmp_path) as kubeconfig:
        await run_page(page, folder, kubeconfig)


@pytest.mark.timeout(180)
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("page", RUNBOOKS, ids=name)
async def test_commands_of_runbooks(page, tmp_path: Path, runbook_cluster: Path) -> None:
    await run_page(page, tmp_path, runbook_cluster)
