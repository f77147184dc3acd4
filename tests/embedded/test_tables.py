from datetime import UTC, datetime, timedelta

import pytest

from partita_testcluster.apiserver.tables import Column, age, compile_path

OBJ = {
    "metadata": {"name": "o"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
        "list": [1, 2, 3],
        "map": {"x": 1, "y": 2},
        "null": None,
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["o"]),
        (".metadata.none.deeper", []),
        (".status.null", []),
        (".status.list[0]", [1]),
        (".status.list[9]", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        ('.metadata.name[?(@.x=="y")]', []),
    ],
)
def test_paths_of_columns(path, found):
    assert compile_path(path)(OBJ) == found


@pytest.mark.parametrize("path", ["name", ".a[", "..a", ".a[*]", ".a[?(@.b>1)]"])
def test_a_path_beyond_the_subset_is_refused(path):
    with pytest.raises(ValueError, match="cannot read the JSONPath"):
        compile_path(path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (75, "75s"), (119, "119s"), (150, "2m30s"), (300, "5m"),
        (700, "11m"), (3 * 3600, "3h"), (3.5 * 3600, "3h30m"), (9 * 3600, "9h"),
        (50 * 3600, "2d2h"), (9 * 86400, "9d"), (800 * 86400, "2y70d"), (9 * 365 * 86400, "9y"),
    ],
)  # fmt: skip
def test_ages_are_abbreviated_as_kubectl_does(seconds, text):
    then = datetime.now(UTC) - timedelta(seconds=seconds + 0.5 * (seconds >= 0))
    assert age(then.isoformat()) == text


@pytest.mark.parametrize("value", [None, "yesterday"])
def test_no_time_has_no_age(value):
    assert age(value) == "<unknown>"


def test_cells_by_type():
    def cell(type_: str, path: str):
        return Column("C", type_, compile_path(path)).cell(OBJ)

    assert cell("integer", ".status.list[0]") == 1
    assert cell("string", ".status.map") == '{"x":1,"y":2}'
    assert cell("string", ".none") is None
    assert cell("date", ".metadata.name") == "<unknown>"
