import pytest

from partita.validation.builtin_schemas import compiled_schemas
from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.patches import merge_patch, strategic_merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # from the appendix of RFC 7386
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
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
    schema = compiled_schemas()["v1", "Pod"]
    assert strategic_merge_patch(POD, {"spec": patch}, schema)["spec"][path] == result


def test_strategic_merge_asks_for_the_key_of_an_item():
    with pytest.raises(APIError, match="merge key: name"):
        strategic_merge_patch(
            POD, {"spec": {"containers": [{"image": "3"}]}}, compiled_schemas()["v1", "Pod"]
        )
