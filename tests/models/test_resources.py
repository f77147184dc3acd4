"""Small questions that the resources answer about themselves."""

import pytest
from pydantic import ValidationError

from partita.models import ApplicationProfile
from partita.models.template import PodTemplate


def profile(*measurements):
    return ApplicationProfile.parse(
        {
            "spec": {
                "application": "resnet",
                "measurements": [
                    {
                        "environment": {"product": product},
                        "duration": "60s",
                        "runs": runs,
                        "steps": [{"gpuMemory": "1Gi"}, {"gpuMemory": "3Gi"}],
                    }
                    for product, runs in measurements
                ],
            }
        }
    ).spec


def test_a_profile_prefers_what_was_measured_on_the_same_product():
    chosen = profile(("A100", 1), ("T4", 9)).measurement("A100")
    assert chosen.environment.product == "A100"


def test_a_profile_falls_back_on_what_rests_on_the_most_runs():
    assert profile(("A100", 1), ("T4", 9)).measurement("H200").environment.product == "T4"
    assert profile(("A100", 5), ("T4", 2)).measurement().environment.product == "A100"


def test_a_profile_without_measurements_tells_nothing():
    assert profile().measurement("A100") is None


@pytest.mark.parametrize("amount", [-1, "-1Gi"])
def test_a_negative_amount_is_refused(amount):
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "application": "app",
            "measurements": [{"duration": "1s", "steps": [{"gpuMemory": amount}]}],
        },
    }
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        ApplicationProfile.parse(body)


def test_a_template_may_leave_its_metadata_empty():
    template = PodTemplate.model_validate({"metadata": {"labels": None}, "spec": {}})
    assert (template.labels, template.annotations, template.containers) == ({}, {}, [])
