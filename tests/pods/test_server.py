"""The Pod that holds a GPU."""

from dataclasses import replace

import pytest

from partita.models import GPUPartition, GPUServer, SharingMode
from partita.pods import ServerPodSettings, build_server_pod
from partita_testcluster.nodes.scheduler import NodeCapacity, Wants
from pods.builders import GI, containers_of, env_of, shape_errors

SETTINGS = ServerPodSettings(namespace="partita-system", image="i", service_account="agent")


def build(mode: str = "MPS", node: str = "", **spec) -> dict:
    partition = {"metadata": {"name": "a100"}, "spec": {"gpus": 1, **spec}}
    server = {
        "metadata": {"name": "a100-0", "uid": "u-1"},
        "spec": {"partition": "a100", "mode": mode, "maxJobs": 7},
    }
    return build_server_pod(
        GPUServer.parse(server), GPUPartition.parse(partition), SETTINGS, node=node
    )


@pytest.mark.parametrize("mode", SharingMode)
def test_the_pod_has_the_shape_that_kubernetes_wants(mode):
    pod = build(
        mode,
        nodeSelector={"pool": "gpu"},
        tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
        gpuSelector={"products": ["P"], "minMemory": "40Gi"},
        deviceInjection="RuntimeClass",
    )
    assert shape_errors(pod) == []


def test_the_check_of_the_shape_sees_what_is_wrong():
    pod = build()
    pod["spec"]["hostPid"] = True
    pod["spec"]["containers"][0]["env"][0]["value"] = 1
    pod["spec"]["volumes"] = {}
    pod["metadata"]["labels"] = []
    pod["spec"]["affinity"] = []
    assert len(shape_errors(pod)) == 5


@pytest.mark.parametrize("mode", SharingMode)
def test_mps_has_its_container_in_mode_mps_alone(mode):
    names = [c["name"] for c in containers_of(build(mode))]
    assert names == (["mps", "agent"] if mode is SharingMode.MPS else ["agent"])


@pytest.mark.parametrize("mode", SharingMode)
def test_the_agent_is_told_what_it_serves(mode):
    env = env_of(containers_of(build(mode))[-1])
    assert env["PARTITA_SERVER"] == "a100-0"
    assert env["PARTITA_MODE"] == str(mode)
    assert env["PARTITA_MAX_JOBS"] == "7"
    assert env["PARTITA_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


@pytest.mark.parametrize(
    ("memory", "above"), [(40 * GI, "40959"), (40 * GI + 1, "40960"), (1, "0")]
)
def test_the_least_memory_is_compared_in_mebibytes_with_the_node_s_label(memory, above):
    pod = build(gpuSelector={"minMemory": memory})
    required = pod["spec"]["affinity"]["nodeAffinity"]
    for term in required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        assert {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": [above]} in (
            term["matchExpressions"]
        )


def test_without_a_selector_any_gpu_will_do():
    spec = build()["spec"]
    assert not {"nodeSelector", "runtimeClassName"} & set(spec)
    for term in node_terms(spec):
        assert {e["key"] for e in term["matchExpressions"]} == {"nvidia.com/gpu.deploy.client"}


@pytest.mark.parametrize("mode", SharingMode)
def test_with_a_claim_every_container_has_the_gpu_and_no_other(mode):
    pod = build(mode, gpuSource="DRA")
    assert shape_errors(pod) == []
    (claim,) = pod["spec"]["resourceClaims"]
    for container in containers_of(pod):
        assert container["resources"]["claims"] == [{"name": claim["name"]}]
        assert "nvidia.com/gpu" not in str(container["resources"])
        assert "NVIDIA_VISIBLE_DEVICES" not in env_of(container)


def test_a_claim_selects_the_gpu_instead_of_labels_of_the_node():
    selector = {"products": ["NVIDIA A100-SXM4-40GB"], "minMemory": "40Gi"}
    for term in node_terms(build(gpuSource="DRA", gpuSelector=selector)["spec"]):
        assert {e["key"] for e in term["matchExpressions"]} == {"nvidia.com/gpu.deploy.client"}


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
    ]
    hashes = [annotations(**spec)["partita.dev/template-hash"] for spec in ({}, *changes)]
    assert len(set(hashes)) == len(hashes)
    assert annotations(policy={"name": "sjf"}, drainTimeout="1s") == annotations()
    assert build(node="node-1")["metadata"]["annotations"] == annotations()


def node_terms(spec: dict) -> list[dict]:
    """Return the terms of the required node affinity."""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


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
    wants = Wants(affinity=node_terms(build()["spec"]))
    assert NodeCapacity("node", labels=labels).takes(wants) is may_run


@pytest.mark.parametrize("mode", SharingMode)
def test_only_an_exclusive_partition_whose_jobs_may_need_several_gpus_is_packed(mode):
    affinity = build(mode)["spec"]["affinity"].get("podAffinity", {})
    if mode is not SharingMode.EXCLUSIVE:
        assert not affinity
        return
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    mates = term["podAffinityTerm"]
    assert mates["topologyKey"] == "kubernetes.io/hostname"
    labels = build(mode)["metadata"]["labels"]
    assert mates["labelSelector"]["matchLabels"].items() <= labels.items()
    assert mates["labelSelector"]["matchLabels"]["partita.dev/partition"] == "a100"


def test_it_outlives_an_unreachable_node_and_does_not_come_back_to_a_cordoned_one():
    own = {"key": "own", "operator": "Exists"}
    tolerations = build(tolerations=[own])["spec"]["tolerations"]
    assert own in tolerations
    effects = {t["key"]: t.get("effect") for t in tolerations}
    assert effects["node.kubernetes.io/not-ready"] == "NoExecute"
    assert effects["node.kubernetes.io/unreachable"] == "NoExecute"
    assert "node.kubernetes.io/unschedulable" not in effects


def test_an_agent_that_may_administer_does_not_forbid_escalation():
    """Kubernetes refuses SYS_ADMIN together with allowPrivilegeEscalation false."""
    for container in containers_of(build()):
        context = container["securityContext"]
        if "SYS_ADMIN" in context["capabilities"]["add"]:
            assert "allowPrivilegeEscalation" not in context


@pytest.mark.parametrize("mode", SharingMode)
def test_the_agent_may_kill_only_where_nothing_else_ends_a_program(mode):
    agent = containers_of(build(mode))[-1]
    may_kill = "KILL" in agent["securityContext"]["capabilities"]["add"]
    assert may_kill == (mode is SharingMode.TIME_SLICING)


def test_two_pods_share_no_part_that_one_could_change_for_the_other():
    first, second = build(), build()
    first["spec"]["containers"][0]["env"][-1]["value"] = "changed"
    assert second == build()


def test_it_has_the_priority_that_the_installation_names_and_none_of_its_own():
    assert "priorityClassName" not in build()["spec"]
    partition = GPUPartition.parse({"metadata": {"name": "a100"}, "spec": {"gpus": 1}})
    server = GPUServer.parse(
        {
            "metadata": {"name": "a100-0", "uid": "u-1"},
            "spec": {"partition": "a100", "mode": "MPS", "maxJobs": 7},
        }
    )
    pod = build_server_pod(server, partition, replace(SETTINGS, priority_class="gpus"))
    assert pod["spec"]["priorityClassName"] == "gpus"
    assert shape_errors(pod) == []


def test_it_comes_back_to_one_node_only():
    required = build(node="node-7", gpuSelector={"products": ["P"]})["spec"]["affinity"]
    terms = required["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    only = {"key": "metadata.name", "operator": "In", "values": ["node-7"]}
    assert [term["matchFields"] for term in terms["nodeSelectorTerms"]] == [[only]] * len(
        terms["nodeSelectorTerms"]
    )
    assert "matchFields" not in str(build()["spec"]["affinity"])


@pytest.mark.parametrize("mode", SharingMode)
def test_the_agent_serves_its_metrics_on_a_named_port(mode):
    *_, agent = containers_of(build(mode))
    (port,) = agent["ports"]
    assert port["name"] == "metrics"
    assert env_of(agent)["PARTITA_METRICS_PORT"] == str(port["containerPort"])
