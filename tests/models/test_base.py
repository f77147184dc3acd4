"""Conditions, label selectors, and what a resource reads of an object."""

from datetime import UTC, datetime, timedelta

import pytest

from partita.models import Condition, GPUPartition, set_condition
from partita.models.selector import LabelSelector

NOW = datetime(2026, 11, 21, 15, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def test_a_condition_without_a_time_gets_one():
    before = (Condition(type="Ready", status="True"),)
    (ready,) = set_condition(before, Condition(type="Ready", status="True"), NOW)
    assert ready.last_transition_time == NOW


def test_other_conditions_stay_as_they_are_and_where_they_are():
    before = tuple(
        Condition(type=kind, status="True", last_transition_time=NOW) for kind in ("A", "B", "C")
    )
    after = set_condition(before, Condition(type="B", status="False"), LATER)
    assert [c.type for c in after] == ["A", "B", "C"]
    assert (after[0], after[2]) == (before[0], before[2])


LABELS = {"team": "vision", "tier": "dev"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"team": "vision"}}, True),
        ({"matchLabels": {"team": "speech"}}, False),
        ({"matchLabels": {"team": "vision", "tier": "prod"}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["vision"]}]}, True),
        ({"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["vision"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["vision"]}]}, False),
        ({"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["vision"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, True),
        (
            {
                "matchLabels": {"team": "vision"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["prod"]}],
            },
            False,
        ),
    ],
)
def test_a_label_selector_selects_as_kubernetes_does(selector, matches):
    assert LabelSelector.model_validate(selector).matches(LABELS) is matches


def test_nothing_is_kept_of_which_fields_were_given():
    condition = Condition(type="Ready", status="True")
    assert condition.model_copy(update={"reason": "Up"}).model_fields_set == set()
    assert condition.model_fields_set == set()


def test_kubectl_s_copy_of_an_object_is_not_kept():
    copy = "kubectl.kubernetes.io/last-applied-configuration"
    meta = {"name": "shared", "annotations": {copy: "{}", "partita.dev/retry": "1"}}
    partition = GPUPartition.parse({"metadata": meta, "spec": {"gpus": 1}})
    assert partition.metadata.annotations == {"partita.dev/retry": "1"}
