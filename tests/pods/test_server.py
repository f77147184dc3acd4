"""The Pod that holds a GPU."""

from dataclasses import replace

import pytest

from partita.models import GPUPartition, GPUServer
from partita.pods.node_rules import NodeRules
from partita.pods.server_pod import ServerPodSettings, build_server_pod
from pods.builders import GI

SETTINGS = ServerPodSettings(namespace="partita-system", image="i", service_account="agent")


def build(mode: str = "MPS", node: str = "", settings=SETTINGS, **spec) -> dict:
    partition = {"metadata": {"name": "a100"}, "spec": {"gpus": 1, **spec}}
    server = {
        "metadata": {"name": "a100-0", "uid": "u-1"},
        "spec": {"partition": "a100", "mode": mode, "maxJobs": 7},
    }
    return build_server_pod(
        GPUServer.parse(server), GPUPartition.parse(partition), settings, node=node
    )


@pytest.mark.parametrize(
    ("memory", "above"), [(40 * GI, "40959"), (40 * GI + 1, "40960"), (1 << 20, "0")]
)
def test_the_least_memory_is_compared_in_mebibytes_with_the_node_s_label(memory, above):
    pod = build(gpuSelector={"minMemory": memory})
    required = pod["spec"]["affinity"]["nodeAffinity"]
    for term in required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        assert {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": [above]} in (
            term["matchExpressions"]
        )


def test_another_selector_needs_another_template_because_its_spec_is_immutable():
    names = {
        build(gpuSource="DRA", gpuSelector=selector)["spec"]["resourceClaims"][0][
            "resourceClaimTemplateName"
        ]
        for selector in ({}, {"minMemory": "40Gi"}, {"minMemory": "80Gi"})
    }
    assert len(names) == 3


def test_its_hash_changes_with_the_settings_that_change_it():
    def annotations(**spec) -> dict:
        return build(**spec)["metadata"]["annotations"]

    changes = [
        {"nodeSelector": {"pool": "gpu"}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"gpuSelector": {"products": ["NVIDIA-L4"]}},
        {"gpuSource": "DRA"},
        {"deviceInjection": "RuntimeClass"},
        {"node": "node-1"},
    ]
    hashes = [annotations(**spec)["partita.dev/template-hash"] for spec in ({}, *changes)]
    assert len(set(hashes)) == len(hashes)
    assert annotations(policy={"name": "sjf"}, drainTimeout="1s") == annotations()


@pytest.mark.parametrize(
    ("labels", "may_run"),
    [
        ({}, True),
        ({"nvidia.com/gpu.deploy.client": "true"}, True),
        ({"nvidia.com/gpu.deploy.client": "paused-for-driver-upgrade"}, False),
        ({"nvidia.com/gpu.deploy.client": "false"}, False),
    ],
)
def test_it_keeps_off_nodes_that_gpu_clients_must_leave(labels, may_run):
    unmet = NodeRules.read(build()["spec"]).unmet("node", labels)
    assert (not unmet) is may_run


def test_two_pods_share_no_part_that_one_could_change_for_the_other():
    first, second = build(), build()
    first["spec"]["containers"][0]["env"][-1]["value"] = "changed"
    assert second == build()


def test_it_has_the_priority_that_the_installation_names_and_none_of_its_own():
    assert "priorityClassName" not in build()["spec"]
    pod = build(settings=replace(SETTINGS, priority_class="gpus"))
    assert pod["spec"]["priorityClassName"] == "gpus"


def test_it_comes_back_to_one_node_only():
    required = build(node="node-7", gpuSelector={"products": ["P"]})["spec"]["affinity"]
    terms = required["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    only = {"key": "metadata.name", "operator": "In", "values": ["node-7"]}
    assert [term["matchFields"] for term in terms["nodeSelectorTerms"]] == [[only]] * len(
        terms["nodeSelectorTerms"]
    )
    assert "matchFields" not in str(build()["spec"]["affinity"])


def test_each_path_below_kubelet_s_directory_follows_the_setting():
    directory = "/var/snap/microk8s/common/var/lib/kubelet"
    pod = build(settings=replace(SETTINGS, kubelet_directory=directory))
    assert "/var/lib/kubelet" not in str(pod).replace(directory, "")
    agent = next(one for one in pod["spec"]["containers"] if one["name"] == "agent")
    assert {"name": "PARTITA_KUBELET_DIRECTORY", "value": directory} in agent["env"]
    inside = {mount["name"]: mount["mountPath"] for mount in agent["volumeMounts"]}
    below = {v["name"]: v["hostPath"]["path"] for v in pod["spec"]["volumes"]}
    assert inside == below
