"""Partita's own kinds on the API server of a test run."""

from __future__ import annotations

from functools import cache

from partita.constants import GROUP, VERSION
from partita.models import crd
from support.api import Api
from support.history import GROUP_PATH

__all__ = ["definitions", "install_crds", "install_kinds", "prepare_namespace"]

definitions = cache(crd.crds)  # each call takes 0.1 s

OPERATOR_NAMESPACE = "partita-system"
SERVER_NAMESPACE = "partita-servers"
"""As `manifests/` have it: only there may the operator write disruption budgets."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install_crds(api: Api) -> None:
    """Create the CRDs that are not there yet, and return when all of them are served."""
    for definition in definitions():
        created = await api.post(DEFINITIONS, definition)
        assert created.status in {201, 409}, created
    for resource in crd.RESOURCES:
        await api.until(f"/apis/{GROUP}/{VERSION}/{resource.plural}", lambda _: True)


async def prepare_namespace(api: Api, name: str, *accounts: str) -> None:
    """Let Pods be made: where service accounts are checked, they exist."""
    for account in ("default", *accounts):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        await api.post(f"/api/v1/namespaces/{name}/serviceaccounts", body)


async def install_kinds(api: Api) -> None:
    """Serve Partita's kinds, and make the operator's namespace."""
    await install_crds(api)
    for name in (OPERATOR_NAMESPACE, SERVER_NAMESPACE):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.post("/api/v1/namespaces", body)
    await prepare_namespace(api, SERVER_NAMESPACE, "partita-agent")
    await _collector_knows(api)


async def _collector_knows(api: Api) -> None:
    """Wait until what belongs to our kinds goes with its owner.

    kube-controller-manager's garbage collector looks for new kinds every 30 s.
    """
    servers = f"{GROUP_PATH}/gpuservers"
    owner = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUServer",
        "metadata": {"name": "owner"},
        "spec": {"partition": "none"},
    }
    uid = (await api.post(servers, owner)).ok().body["metadata"]["uid"]
    reference = {"apiVersion": owner["apiVersion"], "kind": "GPUServer", "name": "owner"}
    meta = {"name": "dependent", "ownerReferences": [{**reference, "uid": uid}]}
    path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    (await api.post(path, body)).ok()
    await api.delete(f"{servers}/owner")
    await api.gone(f"{path}/dependent")
