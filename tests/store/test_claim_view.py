"""What the operator reads of ResourceClaims and of the Pods that have them."""

from typing import Any

import pytest

from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from partita.store.workload_pod import PodClaim, WorkloadPod
from support.builders import GIB, view_of
from support.claims import CLASS, a_claim, claim_body, claim_request, claiming_pod_body


def pod(**fields: Any) -> PodView:
    return view_of(claiming_pod_body(**fields))


def workload(**fields: Any) -> WorkloadPod:
    found = pod(**fields).workload
    assert found is not None
    return found


class TestClaim:
    def test_a_claim_names_its_class_its_amounts_and_its_pod(self) -> None:
        claim = a_claim(requests=[claim_request(memory="6Gi", threads="50", count=2)])
        assert (claim.device_class, claim.count) == (CLASS, 2)
        assert (claim.memory, claim.threads, claim.problem) == (6 * GIB, 50, "")
        assert (claim.owner_pod, claim.owner_pod_uid) == ("serve-1", "uid-serve-1")
        claim = a_claim(memory=None)
        assert (claim.memory, claim.threads, claim.count, claim.problem) == (None, None, 1, "")

    def test_claims_of_other_drivers_are_not_ours(self) -> None:
        assert ClaimView.parse(claim_body(requests=[claim_request("gpu.nvidia.com")])) is None
        assert ClaimView.parse(claim_body(requests=[claim_request("gpu.partita.dev")])) is None

    def test_annotations_stand_in_for_the_capacity_that_older_api_servers_drop(self) -> None:
        amounts = {"partita.dev/gpu-memory": "6Gi", "partita.dev/gpu-threads": "50"}
        amounts["partita.dev/queue-position"] = "9" * 5000  # what Python refuses to read
        claim = a_claim(memory=None, metadata={"annotations": amounts})
        assert (claim.memory, claim.threads, claim.problem) == (6 * GIB, 50, "")
        claim = a_claim(memory="8Gi", metadata={"annotations": amounts})
        assert (claim.memory, claim.threads) == (8 * GIB, 50)
        claim = a_claim(memory=None, metadata={"annotations": {"partita.dev/gpu-memory": "six"}})
        assert "six" in claim.problem

    @pytest.mark.parametrize(
        ("requests", "said"),
        [
            ([claim_request(), claim_request("gpu.nvidia.com")], "2 requests"),
            ([{"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": CLASS}]}],
             "write exactly"),
            ([claim_request(allocationMode="All")], "write count with the number of GPUs"),
            ([claim_request(adminAccess=True)], "remove adminAccess"),
            ([claim_request(tolerations=[{"operator": "Exists"}])], "remove tolerations"),
            ([claim_request(selectors=[{"cel": {"expression": "true"}}])], "remove selectors"),
            ([claim_request(threads="101")], "from 1 to 100"),
            ([claim_request(memory="8000")], "with its unit, such as 8000Mi"),
            ([claim_request(capacity={"requests": {"cores": "1"}})], "memory or threads"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_served_has_a_correction(self, requests: Any, said: str) -> None:
        assert said in a_claim(requests=requests).problem

    def test_configuration_in_the_spec_has_a_correction(self) -> None:
        body = claim_body()
        opaque = {"driver": "gpu.partita.dev", "parameters": {"memory": "39Gi"}}
        body["spec"]["devices"]["config"] = [{"opaque": opaque}]
        view = ClaimView.parse(body)
        assert view is not None
        assert "remove devices.config" in view.problem

    def test_an_allocation_is_ours_or_somebody_else_s(self) -> None:
        def status(driver: str, parameters: Any = None) -> Any:
            opaque = {"driver": driver, "parameters": parameters}
            devices = {
                "results": [{"request": "gpu", "driver": driver, "pool": "shared-0"}],
                "config": [{"opaque": opaque}] if parameters else [],
            }
            return {"allocation": {"devices": devices}, "reservedFor": [{"uid": "uid-serve-1"}]}

        parameters = {"gpuServer": "shared-0", "gpu": "GPU-1", "memory": "8Gi"}
        ours = a_claim(status=status("gpu.partita.dev", parameters))
        assert ours.allocation is not None
        assert ours.allocation.ours
        assert ours.allocation.gpu_servers == ("shared-0",)
        assert [one.memory for one in ours.allocation.slices] == [8 * GIB]
        assert ours.reserved_for == ("uid-serve-1",)
        theirs = a_claim(status=status("gpu.nvidia.com"))
        assert theirs.allocation is not None
        assert not theirs.allocation.ours
        unreadable = a_claim(status=status("gpu.partita.dev", {"memory": "much"}))
        assert unreadable.allocation is not None
        assert unreadable.allocation.slices == ()


class TestPod:
    def test_a_pod_of_any_controller_is_read_with_its_claims(self) -> None:
        assert pod().claims == ("serve-1-gpu",)
        assert workload(claim="mine").claims == (PodClaim("mine", ""),)

    def test_a_claim_that_is_not_made_yet_has_no_name(self) -> None:
        before = pod(status={"resourceClaimStatuses": []})
        assert before.claims == ()
        assert before.updated(claiming_pod_body()).claims == ("serve-1-gpu",)

    def test_a_pod_without_claims_is_kept_if_it_waits_for_one(self) -> None:
        assert PodView.parse(claiming_pod_body(resourceClaims=[])) is None
        gated = claiming_pod_body(resourceClaims=[], gates=("partita.dev/allocation",))
        assert PodView.parse(gated) is not None

    def test_only_annotations_of_partita_are_kept(self) -> None:
        annotations = {"partita.dev/framework": "JAX", "example.org/owner": "me"}
        assert workload(annotations=annotations).annotations == {"partita.dev/framework": "JAX"}

    @pytest.mark.parametrize(
        ("owner", "labels", "application"),
        [
            ("ReplicaSet/serve-7d9f", {"pod-template-hash": "7d9f"}, "Deployment/serve"),
            ("ReplicaSet/a-7d9f", {"rollouts-pod-template-hash": "7d9f"}, "Rollout/a"),
            ("StatefulSet/notebook-x7k2p", {}, "StatefulSet/notebook-x7k2p"),
            ("Job/report-29385001", {}, "CronJob/report"),
            ("Job/report-20261129", {}, "Job/report-20261129"),
            ("Workflow/train-1732838400", {}, "CronWorkflow/train"),
            ("Workflow/train-x7k2p", {}, "Workflow/train"),
            ("RayCluster/tune-raycluster-x7k2p", {}, "RayCluster/tune"),
            ("RayCluster/small", {}, "RayCluster/small"),
            ("ReplicaSet/llm-00003-deployment-7d9f", {"serving.knative.dev/service": "llm"},
             "Service/llm"),
            ("Job/run-x7k2p-node-0", {"jobset.sigs.k8s.io/jobset-name": "run-x7k2p",
                                      "jobset.sigs.k8s.io/replicatedjob-name": "node"},
             "JobSet/run-node"),
            ("", {}, "Pod/serve-1"),
        ],
    )  # fmt: skip
    def test_what_runs_have_in_common_names_the_application(
        self, owner: str, labels: Any, application: str
    ) -> None:
        kind, _, name = owner.partition("/")
        by = {"kind": kind, "name": name, "uid": "u"} if owner else None
        assert workload(owner=by, labels=labels).application == application

    def test_generated_names_and_long_ones_do_not_mix_histories(self) -> None:
        generated = workload(metadata={"generateName": "serve-"})
        assert generated.application == "Pod/serve"
        one, two = (workload(name=f"{'a' * 70}-{user}").application for user in "bc")
        assert one != two
        assert len(one) == len(two) == 63
