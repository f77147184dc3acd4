"""`partita validate` on Pods that ask for a share of a GPU, in manifests of any kind."""

from typing import Any

import pytest
import yaml

from partita.validation.files import check_files

PARTITION: dict[str, Any] = {
    "apiVersion": "partita.dev/v1alpha1",
    "kind": "GPUPartition",
    "metadata": {"name": "shared"},
    "spec": {"gpus": 1, "slices": [{"name": "small", "memory": "8Gi"}]},
}


def claim(
    kind: str = "ResourceClaimTemplate",
    name: str = "gpu-6gi",
    device_class: str = "shared.gpu.partita.dev",
    **exactly: Any,
) -> dict[str, Any]:
    devices = {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class, **exactly}}]
    }
    spec = {"devices": devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }


def amounts(**requests: str) -> dict[str, Any]:
    return {"capacity": {"requests": requests}}


def pod_spec(reference: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    reference = reference or {"resourceClaimTemplateName": "gpu-6gi"}
    resources = {"resources": {"claims": [{"name": "gpu"}]}}
    main = {"name": "main", "image": "program", **resources, **container}
    return {"resourceClaims": [{"name": "gpu", **reference}], "containers": [main]}


MAIN = {"name": "main", "image": "program"}
GATE = {"name": "partita.dev/allocation"}


def with_users() -> dict[str, Any]:
    """Two containers and a sidecar that name one claim."""
    (main,) = pod_spec()["containers"]
    sidecar = {**main, "name": "embed", "restartPolicy": "Always"}
    containers = [main, {**main, "name": "rerank"}]
    return pod_spec() | {"containers": containers, "initContainers": [sidecar]}


def with_limits(**limits: Any) -> dict[str, Any]:
    named = {f"partita.dev/{name.replace('_', '-')}": amount for name, amount in limits.items()}
    main = {"name": "main", "image": "program", "resources": {"limits": named}}
    return {"containers": [main]}


def deployment(spec: dict[str, Any], annotations: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": "team-a"},
        "spec": {
            "selector": {"matchLabels": {"app": "serve"}},
            "template": {
                "metadata": {"labels": {"app": "serve"}, "annotations": annotations or {}},
                "spec": spec,
            },
        },
    }


def findings(*objects: dict[str, Any]) -> list[str]:
    """What is found, without its line."""
    report = check_files([("f", yaml.safe_dump_all(objects).encode())])
    return [str(finding).partition(": ")[2] for finding in report.findings]


WRAPPED = {
    "Pod": lambda spec: {"spec": spec},
    "CronJob": lambda spec: {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}},
    "Unheard": lambda spec: {"spec": {"some": [{"where": {"spec": spec}}]}},
}


@pytest.mark.parametrize("kind", list(WRAPPED))
@pytest.mark.parametrize("spec", [pod_spec(), with_limits(gpu_memory="16Gi")])
def test_the_pods_of_any_kind_are_found(kind: str, spec: dict[str, Any]) -> None:
    body = WRAPPED[kind](spec)
    body |= {"apiVersion": "v1", "kind": kind, "metadata": {"name": "it", "namespace": "team-a"}}
    (found,) = findings(PARTITION, claim(**amounts(memory="16Gi")), body)
    assert found.startswith(f"{kind}/it: spec")
    assert "no slice of shared holds 16.0 GiB: it has small (8.0 GiB, 100 %)" in found


def test_a_pod_that_asks_for_no_gpu_is_not_checked() -> None:
    report = check_files([("f", yaml.safe_dump_all([PARTITION, deployment({"containers": [
        {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]})]).encode())])  # fmt: skip
    assert (report.checked, report.passed_over, report.findings) == (1, 1, [])


CLAIM = claim(**amounts(memory="6Gi"))


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([claim(device_class="other.gpu.partita.dev")],
         "deviceClassName: warning: no GPUPartition other is among these files (there is: shared)"),
        ([claim(device_class="large.shared.gpu.partita.dev")],
         "GPUPartition shared has no slice large (it has: small)"),
        ([claim(count=2), deployment(pod_spec())],
         "reaches one GPU), and shared has MPS: write gpus: 1 (in a claim count: 1)"),
        ([claim(**amounts(cores="2"))], "capacity cores does not exist: write memory or threads"),
        ([claim(capacities={})], "unknown field: did you mean capacity?"),
        ([CLAIM, deployment(pod_spec(), {"partita.dev/framework": "Torch"})],
         "template.metadata.annotations.partita.dev/framework: 'Torch' is unknown: write"),
        ([CLAIM, deployment(pod_spec(), {"partita.dev/gpu-mem": "8Gi"})],
         "unknown annotation: did you mean gpu-memory?"),
        ([deployment(pod_spec(), {"partita.dev/gpu-memory": "much"})],
         "'much' is no quantity: write an amount such as 4Gi"),
        ([CLAIM, deployment(pod_spec(), {"partita.dev/processes": 2})],
         "annotations.partita.dev/processes: 2 is no string: put it in quotes"),
        ([CLAIM, deployment(pod_spec(resources={"claims": [{"name": "gpus"}]}))],
         'claims[0]: Not found: "gpus": must be one of the names in pod.spec.resourceClaims: gpu'),
        ([CLAIM, deployment(pod_spec(resources={"claims": [{"name": "gpu"}],
                                                "limits": {"nvidia.com/gpu": 1}}))],
         "limits.nvidia.com/gpu: warning: it asks for a whole GPU besides the slice of the claim"),
        ([CLAIM, deployment(pod_spec(resources={}))],
         "[0]: warning: no container uses it: write resources.claims: [{name: gpu}] in a"),
        ([claim("ResourceClaim", "one"), deployment(pod_spec({"resourceClaimName": "one"}))],
         "resourceClaimName: warning: all its Pods would use this claim"),
        ([CLAIM, deployment(pod_spec() | {"terminationGracePeriodSeconds": 0})],
         "terminationGracePeriodSeconds: terminationGracePeriodSeconds is 0: the Pod would be"),
        ([CLAIM, deployment(pod_spec() | {"schedulerName": "volcano"})],
         "schedulerName: warning: scheduler volcano must reserve the Pod's ResourceClaims"),
        ([deployment({"containers": [MAIN], "schedulingGates": [GATE]})],
         "spec.schedulingGates[0]: the Pod has the scheduling gate partita.dev/allocation and"),
        ([CLAIM, deployment(with_users())],
         "[0]: warning: 3 containers use it at the same time, so each process may use 1/3 of"),
        ([CLAIM, deployment(with_users(), {"partita.dev/processes": "2"})],
         "allows 2 processes: the newest ones above this number are terminated"),
        ([deployment(pod_spec({"resourceClaimTemplateName": "partita-shared-6144"}))],
         "resourceClaimTemplateName: warning: the name partita-shared-6144 states no amount"),
        ([deployment(pod_spec({"resourceClaimTemplateName": "partita-sharde-6gi"}))],
         "warning: no GPUPartition sharde is among these files (there is: shared)"),
        ([deployment(pod_spec({"resourceClaimTemplateName": "partita-shared-9gi"}))],
         "no slice of shared holds 9.0 GiB: it has small (8.0 GiB, 100 %)"),
        (
            [deployment(pod_spec() | {"initContainers": [
                {**MAIN, "name": "load", "resources": {"claims": [{"name": "cuda"}]}}]},
                {"partita.dev/framework": "JAX"})],
            'initContainers[0].resources.claims[0]: Not found: "cuda": must be one of the names',
        ),
        (
            [{**deployment({"containers": [MAIN]}), "metadata": {"name": "serve", "annotations": {
                "partita.dev/gpu-memory": "6Gi"}}}],
            "metadata.annotations.partita.dev/gpu-memory: warning: its Pods do not get this: move",
        ),
    ],
)  # fmt: skip
def test_claims_and_annotations(objects: list[dict[str, Any]], said: str) -> None:
    (found,) = findings(PARTITION, *objects)
    assert said in found


def container(name: str, **limits: Any) -> dict[str, Any]:
    return {**with_limits(**limits)["containers"][0], "name": name}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (with_limits(gpu_memory="6Gi", gpu_threads="150"), "150 is no percentage from 1 to 100"),
        (with_limits(gpu_memory="5"),
         "'5' is less than 1Mi: write an amount with its unit, such as 5Mi"),
        (with_limits(gpu_threads="50"), "it needs partita.dev/gpu-memory beside it"),
        (with_limits(gpu_memory="6Gi", colour="1"),
         "unknown resource (known: partita.dev/{gpu-memory,gpu-threads})"),
        (with_limits(gpu_memory="6Gi", gpu_thread="5"), "did you mean gpu-threads?"),
        ({"initContainers": [container("first", gpu_memory="6Gi")], "containers": [MAIN]},
         "an init container cannot have it"),
        ({**pod_spec(), **with_limits(gpu_memory="6Gi")},
         "ask by this claim of class shared.gpu.partita.dev or by the limit, not by both"),
        (with_limits(gpu_memory="6Gi") | {"resourceClaims": [
            {"name": "partita-gpu", "resourceClaimName": "x"}]},
         "partita-gpu is the claim that replaces the limit: choose another name"),
    ],
)  # fmt: skip
def test_limits(spec: dict[str, Any], said: str) -> None:
    (found,) = findings(PARTITION, CLAIM, deployment(spec))
    assert said in found


def test_two_containers_cannot_both_have_the_limit() -> None:
    containers = [container("one", gpu_memory="1Gi"), container("two", gpu_memory="1Gi")]
    found = findings(PARTITION, deployment({"containers": containers}))
    assert [said.endswith("containers share a slice by resourceClaims") for said in found] == [
        True,
        True,
    ]


def test_a_limit_needs_the_name_of_one_of_several_partitions() -> None:
    other = {**PARTITION, "metadata": {"name": "other"}}
    spec = with_limits(gpu_memory="6Gi")
    (found,) = findings(PARTITION, other, deployment(spec))
    assert "there are several partitions (other, shared): name one in annotation" in found
    named = deployment(spec, {"partita.dev/partition": "other"})
    assert findings(PARTITION, other, named) == []
    (missing,) = findings(PARTITION, other, deployment(spec, {"partita.dev/partition": "none"}))
    assert "warning: no GPUPartition none is among these files" in missing


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (deployment({**pod_spec(), "dnsPolice": "None"}),
         "template.spec.dnsPolice: unknown field: did you mean dnsPolicy?"),
        (deployment(pod_spec(name="Main")),
         'containers[0].name: Invalid value: "Main": a lowercase RFC 1123 label must'),
        ({**deployment(pod_spec()), "kind": "RayCluster"}
         | {"spec": {"head": {"template": {"spec": pod_spec(imagePullPolicy=1)}}}},
         "spec.head.template.spec.containers[0].imagePullPolicy: Invalid value: 1: "),
        ({**deployment(pod_spec()), "metadata": {"namespace": "team-a"}},
         "metadata.name: Required value: write a name"),
    ],
)  # fmt: skip
def test_what_kubernetes_itself_refuses_is_found(wrong: dict[str, Any], said: str) -> None:
    (found,) = findings(PARTITION, CLAIM, wrong)
    assert said in found


(USER,) = pod_spec()["containers"]
CUDA = {"image": "program", "resources": {"claims": [{"name": "cuda"}]}}
USED = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu-6gi"}]}
PATCH = {"podSpecPatch": yaml.safe_dump(USED)}
AMOUNT = {"metadata": {"annotations": {"partita.dev/gpu-memory": "8Gi"}}}
MISSING = 'resources.claims[0]: Not found: "cuda": must be one of the names in'
CONTRADICTION = "the claim asks for 6.0 GiB, and the annotation partita.dev/gpu-memory of its Pod"


def workflow(template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec |= {"entrypoint": "a", "templates": [{"name": "a", **template}]}
    meta = {"generateName": "run-", "namespace": "team-a"}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": meta,
        "spec": spec,
    }


def predictor(**spec: Any) -> dict[str, Any]:
    meta = {"name": "llm", "namespace": "team-a"}
    body = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService"}
    return body | {"metadata": meta, "spec": {"predictor": spec}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (workflow({"container": CUDA, **USED}), f"spec.templates[0].container.{MISSING}"),
        (workflow({"script": CUDA, **PATCH}), f"spec.templates[0].script.{MISSING}"),
        (workflow({"container": CUDA}, **USED), f"spec.templates[0].container.{MISSING}"),
        (workflow({"containerSet": {"containers": [{"name": "b", **CUDA}]}, **USED}),
         f"spec.templates[0].containerSet.containers[0].{MISSING}"),
        (workflow({"container": {"image": "a"}, "sidecars": [{"name": "b", **CUDA}], **USED}),
         f"spec.templates[0].sidecars[0].{MISSING}"),
        (workflow({"container": USER, **AMOUNT, **PATCH}),
         f"spec.templates[0].podSpecPatch: {CONTRADICTION}"),
        (workflow({"container": USER, **USED}, podMetadata=AMOUNT["metadata"]),
         f"spec.templates[0].resourceClaims[0]: {CONTRADICTION}"),
        (workflow({"steps": [[{"template": "c"}], [{"inline": {"container": CUDA, **USED}}]]},
                  templateDefaults={"container": CUDA}),
         f"spec.templates[0].steps[1][0].inline.container.{MISSING}"),
        (workflow({"dag": {"tasks": [{"inline": {"script": CUDA, **USED}}]}}),
         f"spec.templates[0].dag.tasks[0].inline.script.{MISSING}"),
        (workflow({"container": {"image": "a"}}, templateDefaults={"container": CUDA, **USED}),
         f"spec.templates[0].container.{MISSING}"),
        (workflow({"script": USER, **AMOUNT}, templateDefaults={"container": CUDA, **USED}),
         f"spec.templateDefaults.resourceClaims[0]: {CONTRADICTION}"),
        (workflow({"container": USER, "sidecars": [{"name": "b", "args": []}], **USED},
                  templateDefaults={"sidecars": [{"name": "b", **CUDA}]}),
         f"spec.templates[0].sidecars[0].{MISSING}"),
        (predictor(model={"modelFormat": {"name": "vllm"}, **CUDA}, **USED),
         f"spec.predictor.model.{MISSING}"),
        (predictor(**pod_spec(), workerSpec={"containers": [{"name": "w", **CUDA}], **USED}),
         f"spec.predictor.workerSpec.containers[0].{MISSING}"),
    ],
)  # fmt: skip
def test_pods_are_found_where_other_systems_write_their_parts(
    body: dict[str, Any], said: str
) -> None:
    (found,) = findings(PARTITION, CLAIM, body)
    assert said in found


def test_parameters_of_a_workflow_are_not_judged() -> None:
    container = pod_spec(resources={"limits": {"memory": "{{inputs.parameters.memory}}"},
                                    "claims": [{"name": "gpu"}]})["containers"][0]  # fmt: skip
    notes = {"annotations": {"partita.dev/gpu-memory": "{{inputs.parameters.gpu}}"}}
    assert findings(CLAIM, workflow({"container": container, "metadata": notes, **USED})) == []


def test_a_template_of_another_namespace_is_another() -> None:
    elsewhere = deployment(pod_spec(), {"partita.dev/gpu-memory": "8Gi"})
    elsewhere["metadata"]["namespace"] = "team-b"
    assert findings(PARTITION, CLAIM, elsewhere) == []


def test_findings_name_the_line_of_the_annotation() -> None:
    text = yaml.safe_dump_all([CLAIM, deployment(pod_spec(), {"partita.dev/processes": "0"})])
    (found,) = check_files([("f", text.encode())]).findings
    assert text.splitlines()[found.line - 1].strip() == "partita.dev/processes: '0'"
