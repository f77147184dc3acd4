"""A job's Pod, whatever the user's template says."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partita.models import Framework, SharingMode
from partita.models.partition import Toleration
from partita.models.template import PodTemplate
from partita.pods.job_pod import build_job_pod, gpu_containers
from partita.pods.template_check import TemplateError
from pods.builders import a_job, an_allocation, claimed_variables, containers_of, effective_env

OURS = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_PIPE_DIRECTORY",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "CUPY_GPU_MEMORY_LIMIT",
)
entries = st.one_of(
    st.fixed_dictionaries(
        {"name": st.sampled_from([*OURS, "HOME", "DATA"])}, optional={"value": st.text()}
    ),
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(OURS),
            "valueFrom": st.just({"secretKeyRef": {"name": "s", "key": "k"}}),
        }
    ),
)


@given(
    env=st.lists(entries, max_size=8),
    framework=st.sampled_from(Framework),
    mode=st.sampled_from(SharingMode),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_the_user_s_variables_ours_win_exactly_once(env, framework, mode):
    job, allocation = a_job(env=env, framework=framework), an_allocation(mode=mode)
    ours = claimed_variables(a_job(framework=framework), allocation)
    built = build_job_pod(job, allocation)
    (container,) = containers_of(built.manifest)
    (effective,) = effective_env(job, allocation)
    names = [e["name"] for e in container.get("env") or ()]
    options = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
    for name, value in ours.items():
        if name in options:
            assert effective[name].endswith(value)
        else:
            assert (effective[name], name in names) == (value, False)
    users = [e for e in env if e["name"] not in ours.keys() | options]
    kept = [e for e in container.get("env") or () if e["name"] not in options]
    assert kept == users
    assert set(built.overridden) <= {e["name"] for e in env}


@given(env=st.lists(entries, max_size=4), framework=st.sampled_from(Framework))
@settings(deadline=None)
def test_the_template_is_left_as_it_is_and_the_pod_is_the_same_each_time(env, framework):
    job = a_job(env=env, framework=framework)
    before = copy.deepcopy(job.dump())
    first, second = (build_job_pod(job, an_allocation()) for _ in range(2))
    assert first == second
    first.manifest["spec"]["containers"][0].clear()
    assert job.dump() == before
    assert second == build_job_pod(job, an_allocation())


def test_claims_of_the_template_for_other_devices_stay():
    nic = {"name": "nic", "resourceClaimTemplateName": "rdma"}
    container = {"name": "a", "resources": {"claims": [{"name": "nic"}]}}
    template = {"spec": {"containers": [container], "resourceClaims": [nic]}}
    pod = build_job_pod(a_job(template=template), an_allocation()).manifest
    assert [c["name"] for c in pod["spec"]["resourceClaims"]] == ["nic", "partita-gpu"]
    (built,) = containers_of(pod)
    assert built["resources"]["claims"] == [{"name": "nic"}, {"name": "partita-gpu"}]


def test_a_variable_that_already_says_the_same_is_not_called_overridden():
    built = build_job_pod(
        a_job(framework="JAX", env=[{"name": "XLA_PYTHON_CLIENT_MEM_FRACTION"}]), an_allocation()
    )
    assert built.overridden == ()


def test_containers_with_different_allocator_options_keep_them():
    first, second = ({"name": "PYTORCH_ALLOC_CONF", "value": value} for value in ("a:b", "c:d"))
    containers = [{"name": "a", "env": [first]}, {"name": "b", "env": [second]}, {"name": "c"}]
    job = a_job(framework="PyTorch", template={"spec": {"containers": containers}})
    assert build_job_pod(job, an_allocation()).overridden == ()
    assert [env["PYTORCH_ALLOC_CONF"] for env in effective_env(job, an_allocation())] == [
        "a:b,per_process_memory_fraction:0.2",
        "c:d,per_process_memory_fraction:0.2",
        "per_process_memory_fraction:0.2",
    ]


@pytest.mark.parametrize(
    ("init", "mains", "slots"),
    [
        ([], 1, 1),
        ([], 3, 3),
        (["plain"], 1, 1),
        (["plain", "sidecar"], 1, 2),
        (["sidecar", "sidecar", "plain"], 1, 3),
        (["sidecar", "sidecar"], 2, 4),
    ],
)
def test_containers_that_run_together_are_counted(init, mains, slots):
    containers = [{"name": f"i{i}"} for i in range(len(init))]
    for container, kind in zip(containers, init, strict=True):
        if kind == "sidecar":
            container["restartPolicy"] = "Always"
    spec = {"initContainers": containers, "containers": [{"name": f"m{i}"} for i in range(mains)]}
    assert gpu_containers(PodTemplate(spec=spec)) == slots


def test_the_pod_tolerates_the_taints_of_its_gpu_s_node_beside_the_user_s():
    def built(*own):
        template = {"spec": {"containers": [{"name": "a"}], "tolerations": list(own)}}
        allocation = an_allocation(
            tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists"),)
        )
        return build_job_pod(a_job(template=template), allocation).manifest["spec"]["tolerations"]

    node = {"key": "nvidia.com/gpu", "operator": "Exists"}
    spot = {"key": "spot", "operator": "Exists"}
    assert built() == [node]
    assert built(spot, node) == [spot, node]
    assert built(spot) == [spot, node]


def test_a_pod_is_not_forgotten_before_its_programs_have_ended():
    def built(**more):
        template = {"spec": {"containers": [{"name": "a"}], **more}}
        pod = build_job_pod(a_job(template=template), an_allocation(mode=SharingMode.EXCLUSIVE))
        return pod.manifest["spec"].get("terminationGracePeriodSeconds"), pod.notices

    seconds, notices = built(terminationGracePeriodSeconds=0)
    assert seconds == 1
    assert any("terminationGracePeriodSeconds" in notice for notice in notices)
    assert built(terminationGracePeriodSeconds=7) == (7, ())
    assert built() == (None, ())


A: dict[str, Any] = {"name": "a"}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"containers": []}, "at least one container"),
        ({"containers": "main"}, "containers: must be a list"),
        ({"containers": ["main"]}, "containers[0]: must be a mapping"),
        ({"containers": [{"name": ["a"]}]}, "containers[0].name: must be a text"),
        ({"containers": [A | {"env": {"A": "1"}}]}, "env: must be a list"),
        ({"containers": [A | {"env": [{"value": "1"}]}]}, "env[0].name: is missing"),
        ({"containers": [A | {"env": [{"name": "A", "value": 1}]}]}, "env[0].value: must be a text"),
        ({"containers": [A | {"resources": [1]}]}, "resources: must be a mapping"),
        ({"containers": [A | {"resources": {"limits": [1]}}]}, "limits: must be a mapping"),
        ({"restartPolicy": {"a": 1}}, "restartPolicy"),
        ({"runtimeClassName": [1]}, "runtimeClassName"),
        ({"metadata": {"labels": ["a"]}}, "labels: must be a mapping"),
        ({"metadata": {"annotations": {"a": 1}}}, "annotations.a: must be a text, not 1"),
    ],
)  # fmt: skip
def test_a_template_that_is_none_is_refused_with_what_to_write(spec, says):
    spec = {"containers": [A], **spec}
    job = a_job(template={"metadata": spec.pop("metadata", {}), "spec": spec})
    with pytest.raises(TemplateError) as refused:
        build_job_pod(job, an_allocation())
    assert says in str(refused.value)


def test_containers_run_once_but_sidecars():
    rules = {"restartPolicyRules": [{"action": "Restart"}]}
    containers = [A | {"restartPolicy": "Always"}, {"name": "b", "restartPolicy": "Never", **rules}]
    initial = [
        {"name": "c", "restartPolicy": "OnFailure"},
        {"name": "d", "restartPolicy": "Always"},
    ]
    template = {"spec": {"containers": containers, "initContainers": initial}}
    built = build_job_pod(a_job(template=template), an_allocation())
    found = containers_of(built.manifest)
    assert [c.get("restartPolicy") for c in found] == [None, "Always", None, None]
    assert not any("restartPolicyRules" in c for c in found)
    said = [notice for notice in built.notices if "Write spec.retry" in notice]
    assert [notice.split()[1] for notice in said] == ["c", "a", "b"]


@pytest.mark.parametrize(("own", "kept"), [("1", "1"), ("2", "2"), ("32", "2"), ("", "2")])
def test_a_program_has_no_more_connections_than_leave_all_clients_theirs(own: str, kept: str):
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    job = a_job(env=[{"name": name, "value": own}])
    (found,) = effective_env(job, an_allocation())
    assert found[name] == kept
    assert (name in build_job_pod(job, an_allocation()).overridden) is (own not in {"1", "2"})
