import pytest

from partita.validation.builtin_schemas import compiled_schemas
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.patches import json_patch, merge_patch, strategic_merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # the appendix of RFC 7386
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_as_in_the_rfc(target, patch, result):
    assert merge_patch(target, patch) == result


def test_a_merge_patch_changes_neither_of_its_arguments():
    target, patch = {"a": {"b": 1}}, {"a": {"c": [1]}}
    result = merge_patch(target, patch)
    result["a"]["c"].append(2)
    assert target == {"a": {"b": 1}}
    assert patch == {"a": {"c": [1]}}


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        ({"a/b": 1, "~": 2}, [{"op": "remove", "path": "/a~1b"}], {"~": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}],
         {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ],
)  # fmt: skip
def test_json_patch_operations(document, operations, result):
    assert json_patch(document, operations) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "remove", "path": "/list/7"},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "dance", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_a_json_patch_that_cannot_be_done_is_refused(operation):
    with pytest.raises(APIError) as refusal:
        json_patch({"a": 1, "list": [1]}, [operation])
    assert refusal.value.code == 422


def test_a_json_patch_that_is_no_list_is_refused():
    with pytest.raises(APIError) as refusal:
        json_patch({}, {"op": "add"})
    assert refusal.value.code == 400


POD = {
    "spec": {
        "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}],
        "tolerations": [{"key": "x"}],
        "nodeSelector": {"k": "v"},
    },
    "metadata": {"finalizers": ["one", "two"]},
}


@pytest.mark.parametrize(
    ("patch", "path", "result"),
    [
        (
            {"containers": [{"name": "b", "image": "3"}]},
            "containers",
            [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}],
        ),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, "containers",
         [{"name": "b", "image": "2"}]),
        (
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "c", "image": "4"}],
            },
            "containers",
            [{"name": "b", "image": "2"}, {"name": "a", "image": "1"},
             {"name": "c", "image": "4"}],
        ),
        ({"tolerations": [{"key": "y"}]}, "tolerations", [{"key": "y"}]),
        ({"nodeSelector": {"k": None, "l": "w"}}, "nodeSelector", {"l": "w"}),
    ],
)  # fmt: skip
def test_strategic_merge_patches_of_a_pod(patch, path, result):
    schema = compiled_schemas()["Pod"]
    assert strategic_merge_patch(POD, {"spec": patch}, schema)["spec"][path] == result


def test_strategic_merge_of_a_set_adds_and_deletes_values():
    schema = compiled_schemas()["Pod"]
    added = strategic_merge_patch(POD, {"metadata": {"finalizers": ["three", "one"]}}, schema)
    assert added["metadata"]["finalizers"] == ["one", "two", "three"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["one"]}}
    assert strategic_merge_patch(POD, patch, schema)["metadata"]["finalizers"] == ["two"]


def test_strategic_merge_asks_for_the_key_of_an_item():
    with pytest.raises(APIError, match="merge key: name"):
        strategic_merge_patch(
            POD, {"spec": {"containers": [{"image": "3"}]}}, compiled_schemas()["Pod"]
        )
