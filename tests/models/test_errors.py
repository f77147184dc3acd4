"""What a person is told about an object that cannot be read."""

import pytest
from pydantic import BaseModel, ValidationError

from partita.models import GPUPartition, SharedGPUJob
from partita.models.errors import describe

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "i"}]}}


def told(model, body):
    with pytest.raises(ValidationError) as raised:
        model.parse(body)
    return describe(raised.value)


def job(**spec):
    return told(SharedGPUJob, {"spec": {"partition": "shared", "template": TEMPLATE} | spec})


def partition(**spec):
    return told(GPUPartition, {"spec": {"gpus": 1} | spec})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gpuMemory": "4Gb"}, "is no quantity: write an amount such as 4Gi or 512Mi"),
        ({"expectedDuration": "1 h"}, "is no duration: write one such as 90s, 20m or 1h30m"),
        ({"processes": 99}, "must be at most 60, not {}: write a smaller number"),
        ({"retry.limit": -1}, "must be at least 0, not {}: write a larger number"),
        (
            {"framework": "Caffe"},
            "must be 'TensorFlow', 'PyTorch', 'JAX', 'CuPy' or 'None', not {}: write one of these",
        ),
        ({"gpus": 1.5}, "must be a whole number, not {}: write one"),
        ({"suspend": "maybe"}, "must be true or false, not {}: write one of these"),
        ({"partition": 5}, "must be a text, not {}: write it in quotes"),
        ({"template": []}, "must be a mapping: write its fields below it"),
    ],
)
def test_a_wrong_value_of_a_field(spec, words):
    ((field, value),) = spec.items()
    name, _, below = field.partition(".")
    said = job(**{name: {below: value} if below else value})
    begin = f"{value!r} " if words.startswith("is no") else ""
    assert said == f"spec.{field}: {begin}{words.format(repr(value))}"


def test_a_missing_field():
    assert told(SharedGPUJob, {}) == "spec: is missing: write it"


def test_the_place_in_a_list_is_told():
    assert partition(slices={}) == (
        "spec.slices: must be a list: write its items with a leading dash each"
    )
    assert partition(slices=[{"name": "a", "memory": "1Gi"}, {"name": "b", "memory": "x"}]) == (
        "spec.slices[1].memory: 'x' is no quantity: write an amount such as 4Gi or 512Mi"
    )


def test_an_object_that_is_none():
    assert told(SharedGPUJob, []) == "the object: must be a mapping: write its fields below it"


def test_several_errors_are_joined_and_very_many_are_counted():
    assert job(gpus=0, processes=0).count(";") == 1
    assert partition(slices=[{}] * 5).endswith("; and 5 more")


def test_a_long_value_is_cut():
    assert len(job(framework="x" * 10_000)) < 250


def test_an_error_without_words_of_its_own_still_says_what_to_do():
    class Odd(BaseModel):
        when: bytes

    with pytest.raises(ValidationError) as raised:
        Odd(when=5)
    assert describe(raised.value) == "when: Input should be a valid bytes: write something else"
