"""Costs: the study's table from its own figures, and bills that add up by hand."""

from pathlib import Path
from types import MappingProxyType

import pytest

from bench.policies.study import study
from partita_policies import GPU, create
from partita_policies.types import Step
from partita_research.cost import (
    InputError,
    Instance,
    Prices,
    SharedRental,
    bill,
    published_prices,
    read_prices,
    saving,
    shares,
)
from partita_research.simulator import simulate
from partita_research.simulator.tasks import Application, task_of

GIB = 2**30
SMALL = Instance("small", 1, 4, 16, 0.5, "me")
LARGE = Instance("large", 4, 16, 64, 1.2, "me")
PRICES = Prices(
    MappingProxyType({"small": SMALL, "large": LARGE}), (SharedRental("part", SMALL, LARGE, 4),)
)
QUIET = Application("quiet", 1800.0, (Step(0.0, GIB),))
BOOK = """\
instances:
  - {name: small, gpus: 1, vcpus: 4, memory: 16, dollars: 0.5, source: me}
  - {name: large, gpus: 4, vcpus: 16, memory: 64, dollars: 1.2, source: me}
sharing:
  - {name: part, alone: small, shared: large, sharers: 4}
"""


def result(policy, jobs=2, gpus=1, memory=GIB, **fields):
    tasks = [task_of(QUIET, f"j{i}", memory=memory) for i in range(jobs)]
    cards = [GPU(f"g{i}", "n", 12 * GIB, 4) for i in range(gpus)]
    return simulate(tasks, cards, create(policy), **fields)


def test_the_studys_savings_imply_a_time_of_sjf_that_its_other_figure_contradicts() -> None:
    totals = {name: study().result("random", name, "makespan").value for name in ("dqn", "sjf")}
    assert totals == {"dqn": 2481, "sjf": 2295}
    rentals = {one.name: one for one in published_prices().rentals}

    def saved(name: str, sjf_seconds: float) -> float:
        one = rentals[name]
        return saving(one.part * totals["dqn"], one.alone.dollars * sjf_seconds)

    # 2,839 s of SJF give both published savings; its figure 16 says 2,295 s.
    for one, by_totals in zip(study().savings, (13.23, 38.14), strict=True):
        assert saved(one.name, 2839) == pytest.approx(one.percent, abs=0.015)
        assert saved(one.name, totals["sjf"]) == pytest.approx(by_totals, abs=0.005)


def test_the_shipped_prices_are_those_of_the_studys_table() -> None:
    prices = published_prices()
    assert {one.name: one.dollars for one in prices.instances.values()} == {
        one.instance: one.dollars for one in study().prices
    }
    assert [(one.name, one.alone.name, one.shared.name, one.sharers) for one in prices.rentals] == [
        (one.name, one.alone, one.shared, one.sharers) for one in study().savings
    ]


def test_a_bill_is_the_makespan_at_the_price_of_an_hour() -> None:
    alone, shared = (bill(name, [result(name)], PRICES) for name in ("sjf", "fifo"))
    assert (alone.seconds, alone.shares) == (3600.0, False)
    assert alone.dollars == {"small": 0.5, "large": 1.2}
    assert alone.rentals == {"part": 0.5}
    assert (shared.seconds, shared.shares) == (1800.0, True)
    assert shared.dollars == pytest.approx({"small": 0.25, "large": 0.6})
    assert shared.rentals == pytest.approx({"part": 0.15})
    assert saving(shared.rentals["part"], alone.rentals["part"]) == pytest.approx(70)


def test_instances_are_rented_whole() -> None:
    found = bill("sjf", [result("sjf", jobs=5, gpus=5)], PRICES)
    assert found.seconds == 1800.0
    assert found.dollars == {"small": 5 * 0.25, "large": 2 * 0.6}


def test_jobs_one_after_the_other_do_not_share() -> None:
    assert not shares(result("sjf", jobs=6, gpus=2))
    assert not shares(result("sjf", jobs=0))
    assert shares(result("fifo", jobs=6, gpus=2))


def test_jobs_that_did_not_finish_are_told() -> None:
    found = bill("sjf", [result("sjf", memory=99 * GIB)], PRICES)
    assert not found.whole
    assert found.dollars == {"small": 0.0, "large": 0.0}
    assert saving(1.0, 0.0) == 0.0


def test_a_list_of_prices_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(BOOK)
    assert read_prices(path) == PRICES
    path.write_text(BOOK.partition("sharing")[0])
    assert read_prices(path).rentals == ()


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        (
            "dollars: 0.5",
            "dollars: free",
            2,
            "instances[0].dollars: free: expected a number above 0",
        ),
        ("dollars: 0.5", "dollars: -1", 2, "expected a number above 0"),
        ("dollars: 0.5", "dollars: .nan", 2, "expected a number above 0"),
        ("dollars: 0.5", "dollars: 0", 2, "expected a number above 0"),
        ("dollars: 0.5, ", "", 2, "dollars: missing"),
        ("source: me}\n  - {name: large", "}\n  - {name: large", 2, "source: missing"),
        ("gpus: 4", "gpus: 1.5", 3, "instances[1].gpus: 1.5: expected a whole number of 1 or more"),
        ("name: large", "name: small", 3, "expected a name that no other instance has"),
        ("name: large", "nam: large", 3, "nam: unknown; expected name, gpus"),
        ("shared: large", "shared: huge", 5, "sharing[0].shared: huge: unknown; expected one of"),
        ("sharers: 4", "sharers: 0", 5, "expected a whole number of 1 or more"),
        ("sharing:", "shering:", 4, "shering: unknown; expected instances, sharing"),
        ("source: me}", "source: me", 3, "expected YAML"),
    ],
)
def test_wrong_prices_are_told_with_line_and_what_was_expected(
    tmp_path: Path, old, new, line, said
) -> None:
    path = tmp_path / "prices.yaml"
    assert old in BOOK
    path.write_text(BOOK.replace(old, new, 1))
    with pytest.raises(InputError) as told:
        read_prices(path)
    assert str(told.value).startswith(f"{path}:{line}: ")
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("instances: []", "expected at least one of the instances"),
        ("- a", "expected a mapping with instances, sharing"),
        (BOOK + BOOK.partition("sharing:\n")[2], "expected a name that no other has"),
    ],
)
def test_a_list_without_prices_is_told(tmp_path: Path, text, said) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_prices(path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_prices(tmp_path)
