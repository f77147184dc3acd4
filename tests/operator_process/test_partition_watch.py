"""kopf reaches the API server by the way that our own client takes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import certifi
import kopf
import pytest
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import incluster_config

from partita.kube.connect import access_of, connect
from partita.operator.partition_watch import connection


async def connection_of(api: ApiClient) -> kopf.ConnectionInfo:
    """What kopf's session is made of when it logs in."""
    return connection(await access_of(api))


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Pod with variables and a service account, whose token this is, but without DNS."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    token = tmp_path / "token"
    token.write_text("first")
    loader = incluster_config.InClusterConfigLoader(str(token), certifi.where())
    monkeypatch.setattr(config, "load_incluster_config", loader.load_and_set)
    return token


async def test_in_a_pod_it_needs_no_dns(token: Path):
    async with connect() as api:
        found = await connection_of(api)
    assert found == kopf.ConnectionInfo(
        server="https://10.0.0.1:6443",
        ca_path=certifi.where(),
        insecure=False,
        scheme="Bearer",
        token="first",
    )
    assert found.as_http_headers() == {"Authorization": "Bearer first"}


def tomorrow(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another token in the file, and the client look there again."""
    later = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - the client's own clock
    token.write_text("second")
    clock = SimpleNamespace(now=lambda: later)
    module = SimpleNamespace(datetime=clock, timedelta=timedelta)
    monkeypatch.setattr(incluster_config, "datetime", module)


async def test_it_has_the_token_of_the_day(token: Path, monkeypatch: pytest.MonkeyPatch):
    async with connect() as api:
        tomorrow(token, monkeypatch)
        assert (await connection_of(api)).token == "second"


async def test_unchanged_settings_are_equal_so_that_kopf_knows_what_was_refused(
    token: Path, monkeypatch: pytest.MonkeyPatch
):
    async with connect() as api:
        first = await connection_of(api)
        assert await connection_of(api) == first
        tomorrow(token, monkeypatch)
        assert await connection_of(api) != first


def write_kubeconfig(folder: Path, user: dict[str, str]) -> str:
    """Write the address of a server and a user's credentials; return the file's path."""
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:8001"}}],
                "users": [{"name": "me", "user": user}],
            }
        )
    )
    return str(path)


async def test_with_a_kubeconfig_it_goes_where_that_says(tmp_path: Path):
    async with connect(write_kubeconfig(tmp_path, {"token": "mine"})) as api:
        found = await connection_of(api)
    assert (found.server, found.scheme, found.token) == ("http://127.0.0.1:8001", "Bearer", "mine")


async def test_without_credentials_it_sends_none(tmp_path: Path):
    async with connect(write_kubeconfig(tmp_path, {})) as api:
        assert (await connection_of(api)).as_http_headers() == {}
