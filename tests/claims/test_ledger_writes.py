"""A GPU's ledger is written whole, or not at all."""

from typing import Any

import pytest

from partita.claims.ledger_writes import write_ledger
from partita.kube.errors import ConflictError, NotFoundError, UnavailableError
from partita.scheduling.ledger import ServerChange
from partita.store.state import State
from support.builders import GIB, a_state, allocation, an_allocation, at, server_body
from support.fake_kube import DOWN, FakeKube

CHANGE = ServerChange(release={"claim-old"}, allocate={"claim-train": an_allocation()})
OLD = {"claim-old": allocation("old", memory=GIB)}

UNMARKED = {"releasing_since": None, "release_deadline": None}


def always(*_: Any) -> bool:
    return True


class TestLedger:
    @pytest.fixture
    def kube(self) -> FakeKube:
        return FakeKube(server_body(allocations=OLD))

    @pytest.fixture
    def state(self, kube: FakeKube) -> State:
        return a_state(kube.objects["shared-0"])

    async def write(self, kube: FakeKube, state: State, sound: Any = always) -> bool:
        return await write_ledger(kube, state, "shared-0", CHANGE, sound)  # type: ignore[arg-type]

    async def test_releases_and_allocations_are_one_write_and_again_none(self, kube, state):
        for _ in range(2):
            assert await self.write(kube, state)
        assert state.servers["shared-0"].status.allocations.keys() == {"claim-train"}
        assert len(kube.writes) == 1

    async def test_a_report_in_between_is_read_and_the_write_tried_again(self, kube, state):
        kube.bump("shared-0", {"status": {"usage": {"memory": "1Gi"}}})
        assert await self.write(kube, state)
        assert len(kube.writes) == 2
        assert kube.objects["shared-0"]["status"]["usage"] == {"memory": "1Gi"}

    async def test_an_allocation_in_between_is_asked_about_anew(self, kube, state):
        kube.bump("shared-0", {"status": {"allocations": {"claim-theirs": allocation("theirs")}}})

        def sound(server: Any, _: ServerChange) -> bool:
            return "claim-theirs" not in server.status.allocations

        assert not await self.write(kube, state, sound)
        assert "claim-train" not in kube.objects["shared-0"]["status"]["allocations"]

    async def test_what_is_allocated_anew_in_between_is_not_given_back(self, kube, state):
        """By whoever leads now: its next attempt may run there."""
        kube.bump("shared-0", {"status": {"allocations": {"claim-old": allocation(attempt=2)}}})
        assert await self.write(kube, state)
        assert state.allocated("claim-old")["shared-0"].attempt == 2
        assert state.allocated("claim-train")

    async def test_a_mark_is_written_beside_what_others_change(self, kube, state):
        kube.bump("shared-0", {"status": {"allocations": {"claim-new": allocation("new")}}})
        assert await write_ledger(kube, state, "shared-0", self.mark(state), always)  # type: ignore[arg-type]
        marked = state.allocated("claim-old")["shared-0"]
        assert marked.model_copy(update=UNMARKED) == an_allocation("old", memory=GIB)
        assert (marked.releasing_since, marked.release_deadline) == (at(5), at(35))
        assert state.allocated("claim-new")["shared-0"].releasing_since is None

    @pytest.mark.parametrize("now", [None, allocation(attempt=2)])
    async def test_a_mark_does_not_bring_back_an_allocation(self, kube, state, now: Any):
        kube.bump("shared-0", {"status": {"allocations": {"claim-old": now}}})
        assert await write_ledger(kube, state, "shared-0", self.mark(state), always)  # type: ignore[arg-type]
        there = state.allocated("claim-old")
        assert [a.releasing_since for a in there.values()] == [None] * (now is not None)

    async def test_an_allocation_that_was_marked_in_between_is_released(self, kube, state):
        kube.bump("shared-0", self.mark(state).patch(OLD))
        assert await self.write(kube, state)
        assert not state.allocated("claim-old")

    def mark(self, state: State) -> ServerChange:
        allocated = state.servers["shared-0"].status.allocations["claim-old"]
        times = {"releasing_since": at(5), "release_deadline": at(35)}
        return ServerChange(mark={"claim-old": allocated.model_copy(update=times)})

    async def test_what_took_effect_before_the_answer_was_lost_counts(self, kube, state):
        kube.bump("shared-0", CHANGE.patch(OLD))
        assert await self.write(kube, state)
        assert state.allocated("claim-train")

    async def test_somebody_who_writes_all_the_time_is_given_way(self, kube, state):
        kube.errors = [ConflictError("patch", 409, "changed")] * 9
        assert not await self.write(kube, state)
        assert len(kube.writes) == 5

    async def test_what_cannot_be_written_is_not_allocated(self, kube, state):
        kube.errors = [NotFoundError("patch", 404, "no"), DOWN]
        assert not await self.write(kube, state)
        with pytest.raises(UnavailableError):
            await self.write(kube, state)
        assert not state.allocated("claim-train")

    async def test_a_gpu_that_is_gone_takes_nothing(self, kube, state):
        kube.errors = [ConflictError("patch", 409, "changed")]
        kube.meanwhile = kube.objects.clear
        assert not await self.write(kube, state)
        assert not await write_ledger(kube, State(), "shared-0", CHANGE, always)  # type: ignore[arg-type]
