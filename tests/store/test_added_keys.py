"""Which keys a change adds to the work queues."""

from itertools import permutations

from partita.store.state import State
from partita_policies.types import Profile
from store.objects import added, versioned
from support.builders import (
    GIB,
    a_state,
    allocation,
    has_keys,
    job_body,
    namespace_body,
    node_body,
    partition_body,
    profile_body,
    server_body,
    server_pod_body,
    take,
)


def resnet(state: State, product: str = "") -> Profile:
    found = state.profiles.profile("team-a", "resnet", product)
    assert found is not None
    return found


class TestNews:
    def test_a_node_or_a_server_pod_that_goes_concerns_the_gpus_and_jobs_on_it(self):
        server = server_body(allocations={"claim-train": allocation()})
        state = a_state(node_body(), server, server_pod_body("shared-0"))
        added(state)
        take(state, server_pod_body("shared-0"), deleted=True)
        assert added(state) == ({"uid-train"}, {"shared"})
        take(state, node_body())
        assert added(state) == (set(), set())
        take(state, node_body(ready=False))
        assert added(state) == ({"uid-train"}, {"shared"})
        take(state, node_body(), deleted=True)
        assert added(state) == ({"uid-train"}, {"shared"})

    def test_a_node_that_goes_concerns_server_pods_that_have_not_reported(self):
        server = server_body(node="", conditions={}, status={"uuid": ""})
        state = a_state(node_body(), server, server_pod_body("shared-0"))
        added(state)
        take(state, node_body(), deleted=True)
        assert added(state)[1] == {"shared"}

    def test_a_partition_whose_status_alone_changed_is_no_news(self):
        state = a_state(partition_body(), job_body())
        added(state)
        take(state, partition_body())
        assert added(state) == (set(), set())
        take(state, partition_body(metadata={"generation": 2}))
        assert added(state) == ({"uid-train"}, {"shared"})

    def test_labels_of_a_namespace_concern_partitions_that_choose(self):
        choosy = partition_body("choosy", allowedNamespaces={"matchLabels": {"gpus": "yes"}})
        state = a_state(choosy, partition_body())
        added(state)
        take(state, namespace_body("team-a"))
        assert added(state)[1] == {"choosy"}
        take(state, namespace_body("team-a"))
        assert added(state)[1] == set()

    def test_history_concerns_its_application_and_its_jobs_are_not_looked_at(self):
        state = a_state(job_body(application="resnet"), job_body("other"))
        added(state)
        take(state, profile_body())
        assert state.queues.applications.take() == {("team-a", "resnet")}
        assert state.queues.applications.take() == set()
        assert not has_keys(state)
        assert state.profiles.profile("team-a", "resnet") is not None

    def test_of_several_profiles_of_an_application_that_with_the_most_runs_counts(self):
        bodies = [
            profile_body(name=name, runs=runs, peak=peak)
            for name, runs, peak in (("c", 2, "3Gi"), ("b", 3, "2Gi"), ("a", 3, "1Gi"))
        ]
        for order in permutations([*bodies, profile_body(name="d", peak="4Gi")]):
            state = a_state(*order)
            assert resnet(state).peak_memory == GIB
            take(state, versioned(bodies[2], 10**9), deleted=True)
            assert resnet(state).peak_memory == 2 * GIB

    def test_a_profile_that_changes_its_application_leaves_the_old_one(self):
        state = a_state(profile_body(name="p"))
        state.queues.applications.take()
        take(state, profile_body("vgg", name="p"))
        concerned = {("team-a", "resnet"), ("team-a", "vgg")}
        assert state.queues.applications.take() == concerned
        assert state.profiles.profile("team-a", "resnet") is None
        assert state.profiles.profile("team-a", "vgg") is not None

    def test_all_get_the_same_object_of_a_measurement_until_it_changes(self):
        body = profile_body()
        (first,) = body["spec"]["measurements"]
        on_a100 = {**first, "duration": "30s", "environment": {"product": "A100"}}
        body["spec"]["measurements"] = [{**first, "runs": 2}, on_a100]
        state = a_state(body)
        one, other = resnet(state), resnet(state, "A100")
        assert (one.duration, other.duration) == (60, 30)
        assert resnet(state, "L4") is one
        assert resnet(state, "A100") is other
        take(state, profile_body(duration="61s"))
        assert resnet(state).duration == 61
