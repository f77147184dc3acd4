"""Whatever a tenant does with ordinary rights in its own namespace, it harms nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from adversary.actions import Action, all_actions
from adversary.stage import Stage

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- tests/adversary -->", "<!-- end -->"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("action", all_actions(), ids=str)
async def test_no_other_tenant_is_harmed(stage: Stage, action: Action, api_server) -> None:
    cluster = await stage.cluster()
    try:
        await action.attack(cluster.attacker)
        await cluster.holds()
        await cluster.clean()
    except BaseException:
        await stage.close(spoilt=True)
        raise


def test_there_are_as_many_as_promised() -> None:
    assert len(all_actions()) >= 40


def test_the_security_page_lists_each_action_with_what_stops_it(
    request: pytest.FixtureRequest,
) -> None:
    rows = [f"| {a.what} | {a.stopped_by} |" for a in all_actions()]
    table = "\n".join(["| a tenant tries | what stops it |", "| --- | --- |", *rows])
    before, rest = PAGE.read_text().split(BEGIN)
    listed, after = rest.split(END)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    else:
        assert listed.strip() == table, "run pytest --update-golden tests/adversary"
