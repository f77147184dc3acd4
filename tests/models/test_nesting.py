"""JSON that is nested as deeply as the API server takes it."""

from __future__ import annotations

import json

import pytest

from partita.models import SharedGPUJob
from partita.models.json_text import CUT_OFF, MAX_DEPTH, parse

LEVEL = '{"x":[1,"}]\\"{\\\\",{}],"a":'


def nested(levels: int) -> str:
    """Objects in objects, each with brackets in texts beside the next."""
    return LEVEL * levels + "1" + "}" * levels


def chain(value: object) -> tuple[int, object]:
    """Follow the nested objects down; return how far it went, and what is at the end."""
    levels = 0
    while isinstance(value, dict):
        assert value["x"] == CUT_OFF or value["x"][1] == '}]"{\\'
        value, levels = value["a"], levels + 1
    return levels, value


@pytest.mark.parametrize("levels", [1, 99, 500])
def test_what_can_be_parsed_is_kept_whole(levels):
    assert parse(nested(levels)) == json.loads(nested(levels))
    assert chain(parse(nested(levels).encode())) == (levels, 1)


@pytest.mark.parametrize("levels", [1100, 9999])
def test_what_is_too_deep_is_cut_off_and_all_else_is_kept(levels):
    items = parse(f'{{"items":[{{"deep":{nested(levels)},"last":1}},{{"name":"next"}}]}}')["items"]
    assert chain(items[0]["deep"]) == (MAX_DEPTH - 3, CUT_OFF)
    assert items[0]["last"] == 1
    assert items[1] == {"name": "next"}


@pytest.mark.parametrize("text", ["<html>", "{", '{"a":1}}', "[" * 2000, ""])
def test_what_is_no_json_is_an_error(text):
    with pytest.raises(json.JSONDecodeError):
        parse(text)


@pytest.mark.parametrize("levels", [250, 900, 5000])
def test_a_job_whose_template_is_too_deep_is_refused_by_its_field(levels):
    body = {
        "metadata": {"name": "a", "namespace": "b", "uid": "u"},
        "spec": {
            "partition": "p",
            "template": {"spec": {"containers": [{"name": "m", "image": "i"}], "affinity": 0}},
        },
    }
    text = json.dumps(body).replace('"affinity": 0', f'"affinity": {nested(levels)}')
    with pytest.raises(ValueError, match=r"spec.template[\s\S]*nested too deeply"):
        SharedGPUJob.parse(parse(text))
