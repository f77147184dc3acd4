"""Tokens, audiences and rights as a real API server knows them; `make test-apiserver` runs this."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from console.pages import Page, get, stream
from console.sample_objects import GROUP_PATH, make_job
from partita.console.access import ByToken, NotAllowedError, SignInError
from partita.kube.client import Kube
from partita.kube.connect import connect
from partita.times import Times
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
        yield ByToken(Kube(client), Times(viewer_rights=0.0))


async def viewer(api: Api, namespace: str, *rules: tuple[str, str], verbs: str = "list") -> str:
    """Make a service account with rights on kinds, each in a namespace or (``""``) everywhere."""
    account = {"metadata": {"name": "viewer"}}
    (await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)).ok()
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    for plural, where in rules:
        name = f"{namespace}-{plural}".replace("/", "-")
        inside = f"/namespaces/{where}" if where else ""
        kind = "Role" if where else "ClusterRole"
        rule = {"apiGroups": ["partita.dev", ""], "resources": [plural], "verbs": verbs.split()}
        role = {"metadata": {"name": name}, "rules": [rule]}
        (await api.post(f"{RBAC}{inside}/{kind.lower()}s", role)).ok()
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        (await api.post(f"{RBAC}{inside}/{kind.lower()}bindings", binding)).ok()
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/viewer"


async def token(api: Api, account: str, **spec: Any) -> str:
    body = {"spec": {"expirationSeconds": HOUR, **spec}}
    return str((await api.post(f"{account}/token", body)).ok().body["status"]["token"])


async def test_a_viewer_sees_the_namespaces_that_he_may_list(access, api: Api, namespace) -> None:
    account = await viewer(api, namespace, ("gpupartitions", ""), ("sharedgpujobs", namespace))
    bearer, both = f"Bearer {await token(api, account)}", {namespace, "default"}

    async def sees_its_own() -> bool:  # the authorizer reads new bindings after a moment
        with suppress(NotAllowedError):
            return [*filter(await access.sees(bearer, both), both)] == [namespace]
        return False

    await until(sees_its_own)


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


@pytest.mark.parametrize("may", [True, False])
async def test_the_api_server_decides_what_a_viewer_reads_and_changes(
    access, serve, http, api: Api, namespace, *, may: bool
) -> None:
    kinds = ["sharedgpujobs", "pods", "pods/log"][: 3 if may else 1]
    rules = [("gpupartitions", ""), *((kind, namespace) for kind in kinds)]
    verbs = "get list patch" if may else "get list"
    bearer = await token(api, await viewer(api, namespace, *rules, verbs=verbs))
    ran = {"phase": "Queued", "attempts": [{"number": 1, "pod": "train-1", "memory": "4Gi"}]}
    await make_job(api, "train", namespace, "shared", status=ran)
    pod = {"metadata": {"name": "train-1"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    (await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)).ok()
    async with serve(access) as url:

        async def ask(path: str, method: str = "GET", **more: str) -> Any:
            about = {"namespace": namespace, "name": "train", **more}
            return await get(http, f"{url}/{path}", bearer, method, **about)

        _, seen = await ask("detail")
        async with stream(http, url, bearer, "log", namespace=namespace, name="train") as log:
            page = Page(log)
            said = [await page.read() for _ in range(2)] if may else []
        answers = [await ask("change", "POST", change="suspend") for _ in range(2)]
    job = await api.get(f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs/train")
    assert job.ok().body["spec"].get("suspend", False) is may
    assert seen["changes"] == ["suspend"]
    assert [status for status, _ in answers] == ([200, 409] if may else [403, 403])
    problem = f"You may not change jobs in namespace {namespace}."
    assert seen["changesProblem"] == ("" if may else problem)
    assert log.status == (200 if may else 403)
    about = {"container": "a", "containers": ["a"]}
    ended = {"why": "the Pod has no node yet"}
    assert said == ([("log", about), ("end", ended)] if may else [])
