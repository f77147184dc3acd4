"""Tokens, audiences and rights as a real API server knows them; `make test-apiserver` runs this."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from partita.console.access import ByToken, SignInError
from partita.kube.client import Kube
from partita.kube.connect import connect
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds
from support.polling import until

pytestmark = pytest.mark.smoke

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOUR = 3600


@pytest.fixture
async def access(api_server: ApiServer, api: Api) -> AsyncIterator[ByToken]:
    await install_crds(api)
    async with connect(str(api_server.kubeconfig_of("partita-console"))) as client:
        yield ByToken(Kube(client))


async def viewer(api: Api, namespace: str, *rules: tuple[str, str]) -> str:
    """Make a service account that may list kinds, each in a namespace or (``""``) everywhere."""
    account = {"metadata": {"name": "viewer"}}
    (await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)).ok()
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    for plural, where in rules:
        name = f"{namespace}-{plural}"
        inside = f"/namespaces/{where}" if where else ""
        kind = "Role" if where else "ClusterRole"
        rule = {"apiGroups": ["partita.dev"], "resources": [plural], "verbs": ["list"]}
        role = {"metadata": {"name": name}, "rules": [rule]}
        (await api.post(f"{RBAC}{inside}/{kind.lower()}s", role)).ok()
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        (await api.post(f"{RBAC}{inside}/{kind.lower()}bindings", binding)).ok()
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/viewer"


async def token(api: Api, account: str, **spec: Any) -> str:
    body = {"spec": {"expirationSeconds": HOUR, **spec}}
    made: str = (await api.post(f"{account}/token", body)).ok().body["status"]["token"]
    return made


async def test_a_viewer_sees_the_namespaces_that_he_may_list(access, api: Api, namespace) -> None:
    account = await viewer(api, namespace, ("gpupartitions", ""), ("sharedgpujobs", namespace))
    sees = await access.sees(f"Bearer {await token(api, account)}", {namespace, "default"})
    assert sees(namespace)
    assert not sees("default")


async def test_a_token_for_another_audience_is_refused(access, api: Api, namespace) -> None:
    account = await viewer(api, namespace, ("gpupartitions", ""), ("sharedgpujobs", ""))
    foreign = await token(api, account, audiences=["vault"])
    with pytest.raises(SignInError):
        await access.sees(f"Bearer {foreign}", ())


async def test_a_token_whose_account_is_gone_is_refused(access, api: Api, namespace) -> None:
    account = await viewer(api, namespace, ("gpupartitions", ""))
    old = await token(api, account)
    (await api.delete(account)).ok()

    async def is_forgotten() -> bool:
        review = (await api.post(REVIEWS, {"spec": {"token": old}})).ok()
        return not review.body["status"].get("authenticated")

    await until(is_forgotten)  # the API server reads accounts from a cache
    with pytest.raises(SignInError):
        await access.sees(f"Bearer {old}", ())
