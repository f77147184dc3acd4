"""kopf's session reaches the API server by the way that our own client takes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import certifi
import pytest
import yaml
from aiohttp import ClientConnectionError
from kubernetes.aio import config
from kubernetes.aio.config import incluster_config

from kube.conftest import Server, answer
from partita.kube.client import Kube
from partita.kube.connect import connect, session
from partita.kube.errors import UnavailableError


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


async def test_each_request_has_the_token_of_the_day(
    server: Server, token: Path, monkeypatch: pytest.MonkeyPatch
):
    server.answers = [answer(200)]
    async with connect() as api, session(api) as asking:
        assert api.configuration.host == "https://10.0.0.1:6443"
        await asking.get(server.url)
        later = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - the client's own clock
        clock = SimpleNamespace(now=lambda: later)
        module = SimpleNamespace(datetime=clock, timedelta=timedelta)
        monkeypatch.setattr(incluster_config, "datetime", module)
        token.unlink()  # noqa: ASYNC240 - a few bytes
        with pytest.raises(ClientConnectionError, match="No such file"):
            await asking.get(server.url)
        with pytest.raises(UnavailableError, match="No such file"):
            await Kube(api).request("GET", "/api", attempts=1)
        token.write_text("second")  # noqa: ASYNC240 - a few bytes
        await asking.get(server.url)
    said = [asked.headers["Authorization"] for asked in server.asked]
    assert said == ["bearer first", "bearer second"]


@pytest.mark.parametrize(("user", "said"), [({"token": "mine"}, "Bearer mine"), ({}, None)])
async def test_with_a_kubeconfig_it_has_the_credentials_there(
    server: Server, tmp_path: Path, user: dict[str, str], said: str | None
):
    here = {"cluster": "here", "user": "me"}
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": here}],
        "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": user}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    server.answers = [answer(200)]
    async with connect(str(path)) as api, session(api) as asking:
        await asking.get(server.url)
    assert server.asked[0].headers.get("Authorization") == said
