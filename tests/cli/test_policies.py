"""`partita policies`: the installed policies and their parameters."""

import json
import re
from importlib.metadata import EntryPoint

import pytest

from partita_policies import registry


def test_the_list_shows_descriptions_and_defaults(invoke, text_golden) -> None:
    result = invoke("policies")
    text_golden("policies.txt", result.stdout)


def test_one_policy_is_shown_with_types_and_bounds(invoke) -> None:
    shown = re.sub(r" +", " ", invoke("policies", "tetris").stdout)
    assert "remaining_work number, at least 0 1.0 Weight of short remaining work" in shown
    assert 'usage mean or peak "mean"' in shown
    assert "window integer, at least 1 12" in shown


def test_a_script_reads_the_parameters_as_data(invoke) -> None:
    (fifo, sjf, tetris) = json.loads(invoke("policies", "-o", "json").stdout)
    assert [one["name"] for one in (fifo, sjf, tetris)] == ["fifo", "sjf", "tetris"]
    (exclusive,) = sjf["parameters"]
    assert (exclusive["name"], exclusive["type"]) == ("exclusive", "boolean")
    assert (exclusive["default"], exclusive["required"]) == (False, False)
    assert "Start a job only on a GPU without other jobs" in exclusive["description"]
    assert json.loads(invoke("policies", "sjf", "-o", "json").stdout) == [sjf]


def test_a_policy_that_cannot_be_imported_is_told_in_the_list_and_by_name(
    invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [*registry._entry_points(), EntryPoint("broken", "nowhere:Policy", "partita.policies")]
    monkeypatch.setattr(registry, "_entry_points", lambda: found)
    result = invoke("policies")
    listed = " ".join(result.stdout.split())
    assert "broken cannot be used: policy 'broken' (nowhere:Policy" in listed
    assert "No module named 'nowhere'" in listed
    assert "sjf" in listed
    result = invoke("policies", "broken", code=1)
    assert not result.stdout
    assert "cannot be imported: ModuleNotFoundError: No module named 'nowhere'" in result.stderr


def test_an_unknown_name_is_answered_with_those_that_exist(invoke) -> None:
    result = invoke("policies", "magic", code=1)
    assert "there is no policy 'magic'; installed are: fifo, sjf, tetris" in result.stderr
