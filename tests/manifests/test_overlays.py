"""Each overlay is what the API server takes, in one command, and holds no mistake that it would
not see.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from apiserver.binaries import GATEWAY_API
from apiserver.build import sources
from manifests.pods import refused
from manifests.rendering import BASE, OVERLAYS, SINGLE_NODE, documents, is_taken, kustomize
from partita.pods.server_pod import ServerPodSettings, build_server_pod
from support.api import Api
from support.builders import a_partition, a_server
from support.clusters import ApiServer
from support.kubectl import Kubectl

PODS = "/api/v1/namespaces/{}/pods"


DEPLOYMENTS = ("partita-operator", "partita-console")


def pod_of(overlay: str, deployment: str = "partita-operator") -> dict:
    """A Pod, as its Deployment's controller makes it."""
    template = documents(kustomize(overlay))["Deployment", deployment]["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"] | {"name": deployment},
        "spec": template["spec"],
    }


async def test_one_command_installs_all_into_an_empty_cluster(
    installed: str, kubectl: Kubectl
) -> None:
    objects = documents(kustomize("single-node"))
    assert len(installed.splitlines()) == len(objects)
    assert all(line.endswith(" created") for line in installed.splitlines()), installed
    again = (await kubectl("apply", "-k", str(SINGLE_NODE))).ok()
    # kubectl always sends a budget's selector: it is merged by `replace`.
    changed = [line for line in again.splitlines() if not line.endswith(" unchanged")]
    assert changed == ["poddisruptionbudget.policy/partita-operator configured"], again
    (await kubectl("diff", "-k", str(SINGLE_NODE))).ok()
    (await kubectl("get", "gpupartitions,sharedgpujobs,gpuservers,applicationprofiles")).ok()


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
async def test_the_api_server_takes_it_by_server_side_apply(
    overlay: str, kubectl: Kubectl, installed: str
) -> None:
    await is_taken(kubectl, kustomize(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_overlay_grants_other_rights(overlay: str, api_server: ApiServer) -> None:
    base, found = documents(kustomize("base")), documents(kustomize(overlay))
    rights = {key for key in base if "Role" in key[0] or key[0] == "ServiceAccount"}
    assert rights == {key for key in found if "Role" in key[0] or key[0] == "ServiceAccount"}
    assert all(found[key] == base[key] for key in rights)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_operator_and_console_run_restricted(
    overlay: str, deployment: str, api: Api, installed: str
) -> None:
    path, pod = PODS.format("partita-system"), pod_of(overlay, deployment)
    answer = (await api.post(path, pod, dryRun="All")).ok()
    assert "Warning" not in answer.headers
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    answer = await api.post(path, pod, dryRun="All")
    refused(answer, 'violates PodSecurity "restricted')


@pytest.mark.parametrize("mode", ["MPS", "TimeSlicing", "Exclusive"])
async def test_server_pods_have_a_namespace_that_takes_them_and_the_operators_does_not(
    mode: str, operator: Api, installed: str
) -> None:
    arguments = pod_of("base")["spec"]["containers"][0]["args"]
    given = dict(a.removeprefix("--").split("=") for a in arguments if "=" in a)
    settings = ServerPodSettings(
        namespace=given["server-namespace"],
        image="partita:0.1.0",
        service_account="partita-agent",
        priority_class=given["server-priority-class"],
    )
    pod = build_server_pod(a_server(mode=mode), a_partition(), settings)
    assert pod["metadata"]["namespace"] == "partita-servers"
    (await operator.post(PODS.format("partita-servers"), pod, dryRun="All")).ok()
    pod["metadata"]["namespace"] = "partita-system"
    answer = await operator.post(PODS.format("partita-system"), pod, dryRun="All")
    refused(answer, 'violates PodSecurity "restricted')


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_one_image_is_run_everywhere(overlay: str, api_server: ApiServer) -> None:
    """What the server Pods run follows from it: tests/operator/test_installation.py."""
    images = {line for line in kustomize(overlay).splitlines() if "image: " in line}
    assert len(images) == 1
    assert "PARTITA_IMAGE" not in kustomize(overlay)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_consoles_service_and_policy_find_its_pod(overlay: str, api_server: ApiServer) -> None:
    objects, pod = documents(kustomize(overlay)), pod_of(overlay, "partita-console")
    labels = pod["metadata"]["labels"]
    (port,) = pod["spec"]["containers"][0]["ports"]
    service = objects["Service", "partita-console"]["spec"]
    assert service["selector"].items() <= labels.items()
    assert service["ports"][0]["targetPort"] == port["name"]
    policy = objects["NetworkPolicy", "partita-console"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"][0]["ports"] == [{"port": port["name"], "protocol": "TCP"}]
    for other in ("Service", "PodDisruptionBudget"):
        spec = objects[other, "partita-operator"]["spec"]["selector"]
        assert not spec.get("matchLabels", spec).items() <= labels.items(), other


async def test_the_console_is_published_behind_its_sign_in(
    kubectl: Kubectl, api: Api, installed: str, tmp_path: Path
) -> None:
    folder = "../" * (len(tmp_path.parts) - 1) + str(BASE.parent).lstrip("/")
    parts = [f"{folder}/components/console-{name}" for name in ("oidc", "ingress", "route")]
    overlay = yaml.safe_dump({"resources": [f"{folder}/base"], "components": parts})
    (tmp_path / "kustomization.yaml").write_text(overlay)
    objects, pod = documents(kustomize(str(tmp_path))), pod_of(str(tmp_path), "partita-console")
    kind = "gateway.networking.k8s.io_httproutes.yaml"
    crd = f"--filename={sources(GATEWAY_API) / 'config' / 'crd' / 'standard' / kind}"
    (await kubectl("apply", "--server-side", crd)).ok()
    await kubectl.established(crd)
    await is_taken(kubectl, yaml.safe_dump_all(objects.values()))
    answer = (await api.post(PODS.format("partita-system"), pod, dryRun="All")).ok()
    assert "Warning" not in answer.headers
    console, proxy = pod["spec"]["containers"]
    assert f"--upstream=http://127.0.0.1:{console['ports'][0]['containerPort']}" in proxy["args"]
    service, policy, ingress, route = (
        objects[kind, "partita-console"]["spec"]
        for kind in ("Service", "NetworkPolicy", "Ingress", "HTTPRoute")
    )
    (port,) = service["ports"]
    admitted = policy["ingress"][0]["ports"][0]["port"]
    assert {port["targetPort"], admitted} == {proxy["ports"][0]["name"]}
    backend = ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"]["name"]
    routed = route["rules"][0]["backendRefs"][0]["port"]
    assert (backend, routed) == (port["name"], port["port"])


def test_what_argo_cd_prunes_takes_no_job_with_it(api_server: ApiServer) -> None:
    for (kind, _), found in documents(kustomize("argocd")).items():
        notes = found["metadata"].get("annotations", {})
        first = kind in {"Namespace", "CustomResourceDefinition"}
        assert first == (notes.get("argocd.argoproj.io/sync-wave") == "-2")
        options = notes.get("argocd.argoproj.io/sync-options", "").split(",")
        assert first == ("Prune=false" in options)


def test_many_replicas_are_spread_and_one_can_be_drained(api_server: ApiServer) -> None:
    found = {o: documents(kustomize(o)) for o in ("base", *OVERLAYS)}
    replicas = {
        o: d["Deployment", "partita-operator"]["spec"]["replicas"] for o, d in found.items()
    }
    assert replicas == {"base": 2, "argocd": 2, "dev": 1, "example": 2, "ha": 3, "single-node": 1}
    for objects in found.values():
        budget = objects["PodDisruptionBudget", "partita-operator"]["spec"]
        assert budget["maxUnavailable"] == 1
        template = objects["Deployment", "partita-operator"]["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert budget["selector"]["matchLabels"].items() <= labels.items()
        for constraint in template["spec"]["topologySpreadConstraints"]:
            assert constraint["labelSelector"]["matchLabels"].items() <= labels.items()
        service = objects["Service", "partita-operator"]["spec"]
        assert service["selector"].items() <= labels.items()
