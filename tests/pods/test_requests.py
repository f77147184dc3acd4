"""What a Pod requests of its node, as kube-scheduler counts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.pods.requests import Requests, effective_requests, requests_of

GI = 1 << 30


def container(name="main", *, limits=None, always=False, **requests):
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return {
        "name": name,
        "image": "train",
        "resources": resources,
        **({"restartPolicy": "Always"} if always else {}),
    }


def total(spec, status=None):
    return requests_of(effective_requests(spec, status))


def test_containers_are_added_up():
    spec = {"containers": [container(cpu="500m", memory="1Gi"), container("b", cpu=2)]}
    assert total(spec) == Requests(2500, GI)


def test_a_limit_without_a_request_is_requested():
    limits = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"}
    spec = {"containers": [container(cpu="1", limits=limits)]}
    assert total(spec) == Requests(1000, 4 * GI, 10 * GI)


def test_what_the_pod_states_as_a_whole_replaces_the_sum_of_its_containers():
    spec = {"containers": [container(cpu="1", memory="1Gi")]}
    whole = {"requests": {"cpu": "3", "ephemeral-storage": "1Gi"}}
    assert total(spec | {"resources": whole}) == Requests(3000, GI)
    # A limit of the whole Pod is requested only where no container requests anything.
    limits = {"limits": {"cpu": "8", "memory": "9Gi"}}
    spec = {"containers": [container(cpu="1")]}
    assert total(spec | {"resources": limits}) == Requests(1000, 9 * GI)


def test_overhead_comes_on_top():
    spec = {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "120Mi"}}
    assert total(spec) == Requests(1250, 120 << 20)


@pytest.mark.parametrize(
    ("pending", "cpu"), [(None, 4000), ("Deferred", 4000), ("Infeasible", 2000)]
)
def test_while_a_pod_is_resized_the_most_counts_that_it_may_have(pending, cpu):
    main = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    main["allocatedResources"] = {"cpu": "2"}
    conditions = [{"type": "PodResizePending", "reason": pending}] if pending else []
    status = {"containerStatuses": [main], "conditions": conditions}
    assert total({"containers": [container(cpu="4")]}, status).cpu == cpu


def test_a_pod_that_shrinks_holds_what_it_still_has():
    state = {"name": "main", "resources": {"requests": {"cpu": "4"}}}
    spec = {"containers": [container(cpu="1")]}
    assert total(spec, {"containerStatuses": [state]}).cpu == 4000


@pytest.mark.parametrize(
    ("quantity", "cpu"),
    [("1", 1000), (1, 1000), (0.5, 500), ("0.0001", 1), ("100u", 1), ("1e1", 10000),
     ("2k", 2000000)],
)  # fmt: skip
def test_cpus_are_thousandths_rounded_up(quantity, cpu):
    assert total({"containers": [container(cpu=quantity)]}).cpu == cpu


@pytest.mark.parametrize("quantity", ["two", "-1", None, [], True, "1 Gi"])
def test_what_is_no_quantity_is_refused(quantity):
    with pytest.raises(ValueError, match="write an amount"):
        effective_requests({"containers": [container(memory=quantity)]})


def test_sums_stay_within_64_bits():
    spec = {"containers": [container(str(i), memory="99E", cpu="9e99") for i in range(16)]}
    assert max(total(spec)) < 1 << 62


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=6), st.integers(0, 8))
def test_the_total_is_the_most_that_run_at_any_one_time(inits, main):
    """Played through: each init container runs beside the sidecars that were started before."""
    running, most = 0, 0
    for cpu, always in inits:
        most = max(most, running + cpu)
        running += cpu if always else 0
    most = max(most, running + main)
    spec = {
        "containers": [container(cpu=main)],
        "initContainers": [
            container(str(i), cpu=cpu, always=always) for i, (cpu, always) in enumerate(inits)
        ],
    }
    assert total(spec).cpu == most * 1000
