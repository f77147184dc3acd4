"""What a claim and the annotations of its Pod ask for."""

from typing import Any

import pytest

from partita.models.device_class import ClassTarget
from partita.scheduling.claim_request import request_of_claim
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import Reason, WaitingReason
from partita.scheduling.resolved_request import resolve
from partita_policies.types import Job
from support.builders import GIB, a_partition
from support.claims import CLASS, a_claim, a_claiming_pod, claim_request

SLICED = a_partition(slices=[{"name": "small", "memory": "5Gi", "threadPercent": 25}])
LARGEST = Largest(memory=37 * GIB, gpus_on_node=1)


def resolved(
    *,
    claim: Any = None,
    slice_name: str = "",
    partition: Any = None,
    annotations: dict[str, str] | None = None,
    **pod: Any,
) -> Job | WaitingReason:
    notes = {f"partita.dev/{name}": value for name, value in (annotations or {}).items()}
    workload = a_claiming_pod(annotations=notes, **pod).workload
    assert workload is not None
    found = partition or a_partition()
    target = ClassTarget("shared", slice_name)
    request = request_of_claim(claim or a_claim(memory=None), workload, target)
    return (
        request if isinstance(request, WaitingReason) else resolve(request, found, largest=LARGEST)
    )


def job(**fields: Any) -> Job:
    found = resolved(**fields)
    assert isinstance(found, Job), found
    return found


def problem(**fields: Any) -> str:
    found = resolved(**fields)
    assert isinstance(found, WaitingReason), found
    return found.message


def test_capacity_and_annotations_mean_the_same() -> None:
    claimed = job(claim=a_claim(requests=[claim_request(memory="6Gi", threads="50")]))
    noted = job(annotations={"gpu-memory": "6Gi", "gpu-threads": "50"})
    assert claimed == noted
    assert (noted.memory, noted.thread_percent, noted.alone) == (6 * GIB, 50, False)


def test_a_claim_without_an_amount_runs_alone_until_its_application_is_known() -> None:
    assert job().alone


def test_further_settings_are_those_of_a_job() -> None:
    notes = {"gpu-memory": "6Gi", "application": "bert", "processes": "3"}
    asks = job(annotations={**notes, "expected-duration": "20m"})
    assert (asks.application, asks.clients, asks.duration) == ("bert", 3, 1200.0)


def test_containers_that_name_the_claim_are_counted_as_processes() -> None:
    uses = {"resources": {"claims": [{"name": "gpu"}]}}
    containers = [{"name": "llm", **uses}, {"name": "proxy"}, {"name": "rerank", **uses}]
    sidecar = {"name": "embed", "restartPolicy": "Always", **uses}
    spec = {"containers": containers, "initContainers": [{"name": "load", **uses}, sidecar]}
    assert job(**spec).clients == 3
    assert job(**spec, annotations={"processes": "2"}).clients == 2


def test_a_fixed_slice_has_its_own_amounts() -> None:
    asks = job(slice_name="small", partition=SLICED)
    assert (asks.memory, asks.thread_percent) == (5 * GIB, 25)


@pytest.mark.parametrize(
    ("fields", "lasting"),
    [
        ({"restartPolicy": "Always"}, True),
        ({"restartPolicy": "Never"}, False),
        ({"restartPolicy": "Always", "annotations": {"expected-duration": "20m"}}, False),
    ],
)
def test_what_always_restarts_is_lasting(*, fields: Any, lasting: bool) -> None:
    assert job(**fields).lasting is lasting


@pytest.mark.parametrize(("priority", "counts"), [(None, 0), (50, 10), (-5, -5)])
def test_the_priority_of_a_pod_counts_up_to_the_cap(priority: int | None, counts: int) -> None:
    fields = {"priority": priority} if priority is not None else {}
    assert job(partition=a_partition(maxPriority=10), **fields).priority == counts


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"gpu-memory": "much"}, "'much' is no quantity"),
        ({"gpu-memory": "8000"}, "with its unit, such as 8000Mi"),
        ({"gpu-threads": "150"}, "from 1 to 100"),
        ({"processes": "none"}, "write one such as 2"),
        ({"framework": "Torch"}, "PyTorch"),
        ({"expected-duration": "soon"}, "20m"),
        ({"application": "a" * 64}, "at most 63"),
        ({"memory-limit": "8Gi"}, "guaranteed"),
        ({"gpu-memory": "8Gi", "memory-limit": "4Gi"}, "guaranteed"),
    ],
)
def test_an_invalid_annotation_has_a_correction(annotations: dict[str, str], said: str) -> None:
    found = resolved(annotations=annotations)
    assert isinstance(found, WaitingReason)
    assert found.reason is Reason.INVALID_SPEC
    assert said in found.message
    assert "annotation partita.dev/" in found.message


def test_both_spellings_must_agree() -> None:
    claim = a_claim(requests=[claim_request(memory="6Gi")])
    assert job(claim=claim, annotations={"gpu-memory": "6144Mi"}).memory == 6 * GIB
    said = problem(claim=claim, annotations={"gpu-memory": "8Gi"})
    assert "6.0 GiB" in said
    assert "8.0 GiB" in said
    assert "remove one of them" in said


def test_a_fixed_slice_with_an_amount_contradicts_itself() -> None:
    said = problem(slice_name="small", partition=SLICED, annotations={"gpu-memory": "8Gi"})
    assert CLASS in said
