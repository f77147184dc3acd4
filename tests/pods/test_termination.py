"""The time that a Pod leaves MPS to terminate its clients."""

from __future__ import annotations

import pytest

from partita.models import SharingMode
from partita.models.partition import GPUPartitionSpec
from partita.models.sharing import SharingSpec
from partita.pods.job_pod import build_job_pod
from partita.pods.termination import ADDED_GRACE, PRE_STOP_SLEEP, preemption_grace
from pods.builders import a_job, an_allocation


def built(grace: int | None = None, **container: object):
    spec = {"containers": [{"name": "main", **container}]}
    if grace is not None:
        spec["terminationGracePeriodSeconds"] = grace
    return build_job_pod(a_job(template={"spec": spec}), an_allocation())


def pre_stop(made) -> object:
    (container,) = made.manifest["spec"]["containers"]
    return (container.get("lifecycle") or {}).get("preStop")


@pytest.mark.parametrize(("own", "whole"), [(None, 30), (0, 1), (7, 7), (600, 600)])
def test_programs_keep_their_own_grace_period(own: int | None, whole: int):
    made = built(grace=own)
    assert made.manifest["spec"]["terminationGracePeriodSeconds"] == whole + ADDED_GRACE
    assert pre_stop(made) == {"sleep": {"seconds": PRE_STOP_SLEEP}}


@pytest.mark.parametrize("lifecycle", ["none", {"preStop": "none"}, {"preStop": {"sleep": "x"}}])
def test_a_template_that_the_api_server_rejects_is_no_error_here(lifecycle: object):
    built(lifecycle=lifecycle)


@pytest.mark.parametrize(("mode", "added"), [("MPS", ADDED_GRACE), ("TimeSlicing", 0)])
def test_preemption_leaves_the_programs_their_whole_grace_period(mode: str, added: int):
    spec = GPUPartitionSpec(
        gpus=1, preemption_grace_period=10.0, sharing=SharingSpec(mode=SharingMode(mode))
    )
    assert preemption_grace(spec) == 10 + added
