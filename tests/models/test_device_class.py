"""Names of device classes."""

import pytest

from partita.models.device_class import class_target, device_class_of


@pytest.mark.parametrize(
    ("partition", "slice_name"),
    [("shared", ""), ("shared", "small"), ("team.shared", ""), ("team.shared", "small")],
)
def test_a_class_is_read_as_what_it_was_made_for(partition: str, slice_name: str) -> None:
    name = device_class_of(partition, slice_name)
    assert name.endswith(".gpu.partita.dev")
    assert class_target(name, {partition}) == (partition, slice_name)


@pytest.mark.parametrize("name", ["gpu.nvidia.com", "gpu.partita.dev", "gpu.partita.device", ""])
def test_classes_of_others_stand_for_nothing(name: str) -> None:
    assert class_target(name) is None
