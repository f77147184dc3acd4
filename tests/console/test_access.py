"""Who may see what, by what an API server says of a token."""

from __future__ import annotations

import pytest

from console.reviews import Reviews
from partita.console import access
from partita.console.access import ByToken, SignInError
from partita.times import Times


def by_token(**rights: set[str]) -> tuple[ByToken, Reviews]:
    reviews = Reviews(rights)
    return ByToken(reviews), reviews  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer  ", "Basic dTpw", "ada", "Bearer " + "x" * 20_000, "Bearer \udcff"],
)
async def test_what_is_no_token_is_refused_without_asking(header: str) -> None:
    console, reviews = by_token(ada={"gpupartitions"})
    with pytest.raises(SignInError):
        await console.sees(header, ())
    assert not reviews.asked


async def test_each_sees_the_namespaces_whose_jobs_he_may_list() -> None:
    console, reviews = by_token(
        ada={"gpupartitions", "sharedgpujobs/team"},
        bob={"gpupartitions", "sharedgpujobs/other"},
        root={"gpupartitions", "sharedgpujobs"},
    )
    for who, own in (("ada", "team"), ("bob", "other")):
        sees = await console.sees(f"Bearer {who}", {"team", "other"})
        assert sees is not None
        assert [name for name in ("team", "other", "never asked about") if sees(name)] == [own]
    assert await console.sees("bearer root", {"team"}) is None
    # No audience is named, so a token for somebody else is refused.
    assert reviews.asked[0] == {"token": "ada"}


async def test_a_namespace_without_an_answer_stays_hidden() -> None:
    console, reviews = by_token(ada={"gpupartitions", "sharedgpujobs/team", "sharedgpujobs/other"})
    reviews.fails = "team"
    sees = await console.sees("Bearer ada", {"team", "other"})
    assert sees is not None
    assert not sees("team")
    assert sees("other")


async def test_answers_count_for_a_while_and_are_then_asked_for_again(monkeypatch) -> None:
    now = 1000.0
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    console, reviews = by_token(ada={"gpupartitions", "sharedgpujobs"})
    await console.sees("Bearer ada", ())
    asked = len(reviews.asked)
    await console.sees("Bearer ada", ())
    assert len(reviews.asked) == asked

    del reviews.rights["ada"]
    now += Times().viewer_rights
    with pytest.raises(SignInError):
        await console.sees("Bearer ada", ())


async def test_what_is_remembered_is_bounded() -> None:
    console = ByToken(Reviews({"ada": {"gpupartitions"}}), most_cached=5)  # type: ignore[arg-type]
    await console.sees("Bearer ada", [f"team-{n}" for n in range(20)])
    assert len(console._rights.answers) == 5
