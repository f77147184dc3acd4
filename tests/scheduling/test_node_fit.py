"""Which nodes could run a job's Pod, and what is said where none can."""

from typing import Any

import pytest

from partita.models.partition import Toleration
from partita.models.template import PackedTemplate, PodTemplate
from partita.pods.node_requirements import read_needs
from partita.scheduling.node_fit import Host, Largest, NodeFit, fit
from partita.scheduling.reasons import Reason, WaitingReason, stalled
from partita.store.views import NodeInfo
from support.builders import GIB, node_body


def host(name: str = "node-1", *, memory: int = 37, gpus: int = 2, **fields: Any) -> Host:
    amounts = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "100Gi"}
    body = node_body(name, **{"allocatable": amounts, **fields})
    return Host(name, NodeInfo.parse(body), memory=memory * GIB, gpus=gpus)


def needs(*, requests: dict[str, Any] | None = None, **spec: Any) -> Any:
    container = {"name": "main", "image": "train", "resources": {"requests": requests or {}}}
    template = PodTemplate(spec={"containers": [container], **spec})
    return read_needs(PackedTemplate.pack(template))


def found(asked: Any, *hosts: Host, tolerations: Any = ()) -> NodeFit | WaitingReason:
    return fit(asked, Largest.of(hosts, tolerations), "shared")


def test_a_template_that_fits_everywhere_names_no_nodes():
    assert found(needs(requests={"cpu": "64"}), host(), host("node-2")).nodes == frozenset()


def test_only_nodes_that_could_run_it_count():
    pool = (
        host("node-1", labels={"zone": "a"}, memory=74),
        host("node-2", labels={"zone": "b"}, memory=37, gpus=4),
        host("node-3", labels={"zone": "b"}, allocatable={"cpu": "2"}, memory=74),
    )
    fitting = found(needs(requests={"cpu": "8"}, nodeSelector={"zone": "b"}), *pool)
    assert fitting.nodes == {"node-2"}
    assert (fitting.largest.memory, fitting.largest.gpus_on_node) == (37 * GIB, 4)


def test_what_a_node_does_not_say_is_not_held_against_it():
    unknown = (Host("node-1"), host("node-2", allocatable={}))
    assert found(needs(requests={"cpu": "1000"}), *unknown) == NodeFit(Largest.of(unknown))
    assert found(needs(requests={"cpu": "1000"})) == NodeFit(Largest())


TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}
PRESSURE = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("asked", "pool", "said"),
    [
        (needs(nodeSelector={"zone": "b"}), (host(labels={"zone": "a"}), host("node-2")),
         "2 of 2 nodes lack the label zone=b (template.spec.nodeSelector)"),
        (needs(requests={"cpu": "96"}), (host(), host("node-2", allocatable={"cpu": "32"})),
         "it needs 96 CPUs, and 2 of 2 nodes have at most 64"),
        (needs(requests={"memory": "1Ti"}), (host(),),
         "it needs 1024.0 GiB of memory, and 1 of 1 nodes have at most 256.0 GiB"),
        (needs(requests={"ephemeral-storage": "200Gi"}), (host(),),
         "it needs 200.0 GiB of ephemeral storage, and 1 of 1 nodes have at most 100.0 GiB"),
        (needs(requests={"rdma/hca": "1"}), (host(),),
         "it needs 1 of rdma/hca, and 1 of 1 nodes have at most 0"),
        (needs(), (host(taints=[TAINT]),),
         "1 of 1 nodes have the taint team=b:NoSchedule, which it does not tolerate"),
        (
            needs(requests={"cpu": "96"}, nodeSelector={"zone": "a"}),
            (host(), host("node-2", labels={"zone": "a"})),
            (
                "1 of 2 nodes lack the label zone=a (template.spec.nodeSelector); it needs 96 "
                "CPUs, and 1 of 2 nodes have at most 64"
            ),
        ),
    ],
)  # fmt: skip
def test_a_template_that_no_node_could_run_is_told_why(asked, pool, said):
    why = found(asked, *pool)
    assert isinstance(why, WaitingReason)
    assert why.reason is Reason.NEVER_FITS
    assert stalled(why.reason)
    assert why.message == (
        f"no node of shared can run its Pod: {said}: "
        "change its template, or submit it to another partition"
    )


def test_the_partition_s_tolerations_count_as_the_template_s_own():
    tainted = host(taints=[TAINT])
    more = (Toleration(key="team", operator="Exists"),)
    assert isinstance(found(needs(), tainted), WaitingReason)
    assert isinstance(found(needs(), tainted, tolerations=more), NodeFit)
    own = [{"key": "team", "operator": "Equal", "value": "b"}]
    assert isinstance(found(needs(tolerations=own), tainted), NodeFit)


def test_what_passes_by_itself_is_waited_for():
    why = found(needs(), host(taints=[PRESSURE]))
    assert why.reason is Reason.INSUFFICIENT_NODE
    assert not stalled(why.reason)
    assert "node.kubernetes.io/disk-pressure:NoSchedule" in why.message


def test_states_that_nodes_tell_otherwise_are_no_matter_of_the_template():
    keys = ("not-ready", "unreachable", "unschedulable")
    taints = [{"key": f"node.kubernetes.io/{k}", "effect": "NoSchedule"} for k in keys]
    assert isinstance(found(needs(), host(taints=taints)), NodeFit)


def test_nothing_is_final_while_a_gpu_arrives():
    arriving = Host("node-2", host("node-2", allocatable={"cpu": "2"}).info, arriving=True)
    assert found(needs(requests={"cpu": "96"}), host(), arriving).reason is Reason.INSUFFICIENT_NODE


def test_gpus_in_a_template_are_no_demand_on_the_node():
    asked = needs(requests={"nvidia.com/gpu": "8", "partita.dev/gpu-memory": "1Gi"})
    assert isinstance(found(asked, host()), NodeFit)


def test_what_was_found_is_kept_while_something_asks_for_it():
    largest, asked = Largest.of([host()]), needs(requests={"cpu": "1"})
    assert fit(asked, largest, "shared") is fit(asked, largest, "shared")
    del asked
    assert not largest.fits


def with_protocol_3(*, user_namespaces: bool) -> Host:
    body = node_body("node-1")
    features = {"userNamespaces": user_namespaces}
    body["status"]["runtimeHandlers"] = [{"name": "", "features": features}]
    return Host("node-1", NodeInfo.parse(body), memory=GIB, gpus=1, protocol=3)


def test_root_needs_a_user_namespace_where_mps_has_protocol_3():
    assert isinstance(found(needs(), with_protocol_3(user_namespaces=True)), NodeFit)
    refused = found(needs(), with_protocol_3(user_namespaces=False))
    assert isinstance(refused, WaitingReason)
    assert refused.reason is Reason.NEVER_FITS
    assert "main may run as root only in a user namespace, and they support none" in refused.message
    assert "set runAsNonRoot: true and allowPrivilegeEscalation: false" in refused.message
    refused = found(needs(hostNetwork=True), with_protocol_3(user_namespaces=True))
    assert isinstance(refused, WaitingReason)
    assert "the Pod sets hostNetwork" in refused.message
    context = {"runAsUser": 1000, "allowPrivilegeEscalation": False}
    harmless = {"name": "main", "image": "train", "securityContext": context}
    asked = needs(containers=[harmless], hostNetwork=True)
    assert isinstance(found(asked, with_protocol_3(user_namespaces=False)), NodeFit)
