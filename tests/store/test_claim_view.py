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
            ([claim_request(memory="0")], "above zero"),
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
        assert workload(claim="mine").claims == (PodClaim("gpu", "mine", ""),)

    def test_a_claim_that_is_not_made_yet_has_no_name(self) -> None:
        before = pod(status={"resourceClaimStatuses": []})
        assert before.claims == ()
        assert before.updated(claiming_pod_body()).claims == ("serve-1-gpu",)

    def test_a_pod_without_claims_is_not_kept(self) -> None:
        assert PodView.parse(claiming_pod_body(resourceClaims=[])) is None

    def test_only_annotations_of_partita_are_kept(self) -> None:
        annotations = {"partita.dev/framework": "JAX", "example.org/owner": "me"}
        assert workload(annotations=annotations).annotations == {"partita.dev/framework": "JAX"}

    @pytest.mark.parametrize(
        ("owner", "labels", "application"),
        [
            ({"kind": "ReplicaSet", "name": "serve-7d9f", "uid": "r"},
             {"pod-template-hash": "7d9f"}, "Deployment/serve"),
            ({"kind": "StatefulSet", "name": "notebook", "uid": "s"}, {}, "StatefulSet/notebook"),
            (None, {}, "Pod/serve-1"),
        ],
    )  # fmt: skip
    def test_the_controller_names_the_application(
        self, owner: Any, labels: Any, application: str
    ) -> None:
        assert workload(owner=owner, labels=labels).application == application
