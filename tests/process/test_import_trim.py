"""What operator and agent leave out of their memory, in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import certifi
import pytest

from partita.kube.connect import connect
from support.imports import imported

UNUSED = {"requests", "oauthlib", "websocket", "rich", "numpy", "grpc"}
TRIM = "from partita.import_trim import leave_out_unused; leave_out_unused()"


def loaded(before: str, program: str = "agent") -> set[str]:
    """Return the modules that are loaded once a program is, after some other statements."""
    return imported(f"{before}\nimport partita.{program}.main")


def test_the_agent_loads_only_what_it_uses():
    found = loaded(TRIM)
    assert found & {*UNUSED, "kopf", "click"} == set()
    assert {"grpclib", "kubernetes", "pynvml", "structlog"} <= found
    assert {"requests", "oauthlib", "rich"} <= loaded(""), "the list is out of date"


def test_the_operator_loads_only_what_it_uses():
    found = loaded(TRIM, "process")
    assert found & UNUSED == set()
    assert {"kopf", "kubernetes", "structlog"} <= found


def test_what_others_use_of_the_packages_is_still_to_be_had():
    loaded(
        f"{TRIM}\n"
        "import rich.console, structlog\n"
        "from kubernetes.aio import config\n"
        "from kubernetes.aio.client import ApiClient, Configuration\n"
        "assert config.load_incluster_config and ApiClient and Configuration"
    )


def test_a_program_starts_without_reading_certificates_or_building_models():
    loaded(
        f"{TRIM}\n"
        "import gc, ssl, partita.cli.connection\n"
        "from partita.models import Model\n"
        "found = gc.get_objects()\n"
        "contexts = [one for one in found if isinstance(one, ssl.SSLContext)]\n"
        "assert contexts and not any(one.cert_store_stats()['x509'] for one in contexts)\n"
        "models = [one for one in found if isinstance(one, type) and issubclass(one, Model)]\n"
        "assert not [one for one in models if one is not Model and one.__pydantic_complete__]"
    )


@pytest.mark.parametrize(("scheme", "read"), [("http", False), ("https", True)])
async def test_the_certificates_of_the_system_are_read_for_tls(
    monkeypatch, tmp_path: Path, scheme, read
):
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    named = {"name": "a", "context": {"cluster": "a", "user": "a"}, "user": {}}
    cluster = {"name": "a", "cluster": {"server": f"{scheme}://127.0.0.1:1"}}
    kubeconfig = {"clusters": [cluster], "users": [named], "contexts": [named]}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps({**kubeconfig, "current-context": "a"}))
    async with connect(str(file)) as api:
        assert bool(api.rest_client.ssl_context.cert_store_stats()["x509"]) is read
