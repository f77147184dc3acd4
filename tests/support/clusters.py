"""The API server that a test run works against: partita's embedded one, or a real one.

``pytest --server embedded|apiserver`` chooses for the whole run, so that one suite holds both to
the same behaviour. A pytest plug-in: ``tests/conftest.py`` names it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from support.api import Api
from support.kubectl import Kubectl
from support.polling import TIMEOUT, until

if TYPE_CHECKING:
    from apiserver.controlplane import ControlPlane

__all__ = [
    "ApiServer",
    "NotForTestsError",
    "api",
    "api_server",
    "check_for_tests",
    "connections_ended",
    "kubectl",
    "namespace",
    "server_of_its_own",
]

MANIFESTS = Path(__file__).parents[2] / "manifests"


class NotForTestsError(Exception):
    """A kubeconfig leads to a cluster that is not named for tests."""


def check_for_tests(kubeconfig: Path) -> None:
    """Refuse a kubeconfig whose current cluster is not one for tests.

    Its name must be ``partita-embedded`` or begin with ``partita-test``: the tiers create and
    delete cluster-wide objects, so somebody's own cluster must never be taken by accident.

    Raises
    ------
    NotForTestsError
        It is another cluster, or the file has no current one.
    """
    config = yaml.safe_load(kubeconfig.read_text()) or {}
    current = config.get("current-context")
    name = next(
        (c["context"]["cluster"] for c in config.get("contexts") or () if c["name"] == current),
        None,
    )
    if name is None:
        raise NotForTestsError(f"{kubeconfig} has no current context that names a cluster.")
    if name != "partita-embedded" and not name.startswith("partita-test"):
        raise NotForTestsError(
            f"{kubeconfig} leads to the cluster {name!r}; tests run only on one named "
            "partita-test* or partita-embedded."
        )


@dataclass(frozen=True)
class ApiServer:
    """An API server that runs now.

    Attributes
    ----------
    kind
        ``embedded`` or ``apiserver``.
    url
        Base URL without a slash at its end.
    kubeconfig
        Path of a kubeconfig of an administrator.
    token
        That administrator's bearer token, where the server asks for one.
    certificate
        What to trust, where the server speaks TLS.
    tokens
        Bearer tokens of service accounts, by name, where the server asks for one.
    audit_log
        What these accounts did, where the server notes it.
    """

    kind: str
    url: str
    kubeconfig: Path
    token: str | None = None
    certificate: Path | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)
    audit_log: Path | None = None

    @classmethod
    def of(cls, plane: ControlPlane) -> ApiServer:
        """Return the API server of a control plane that runs."""
        return cls(
            kind="apiserver",
            url=plane.url,
            kubeconfig=plane.kubeconfig,
            token=plane.token,
            certificate=plane.certificate,
            tokens=plane.tokens,
            audit_log=plane.audit_log,
        )

    def kubeconfig_of(self, account: str) -> Path:
        """Return a kubeconfig of a service account, or the administrator's where none is known."""
        if account not in self.tokens:
            return self.kubeconfig
        path = self.kubeconfig.with_name(f"{account}.kubeconfig")
        if not path.exists():
            config = yaml.safe_load(self.kubeconfig.read_text())
            config["users"][0]["user"] = {"token": self.tokens[account]}
            path.write_text(yaml.safe_dump(config))
        return path

    def session(self) -> aiohttp.ClientSession:
        """Return a new client session that carries the token; the caller closes it."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return aiohttp.ClientSession(headers=headers)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return what to trust, or None for plain HTTP."""
        if self.certificate is None:
            return None
        return ssl.create_default_context(cafile=str(self.certificate))

    def api(self, session: aiohttp.ClientSession) -> Api:
        """Return a client over ``session``."""
        return Api(session, self.url, ssl_context=self.ssl_context())


@contextmanager
def embedded_server(folder: Path) -> Iterator[ApiServer]:
    """Run the embedded API server on a loop of its own thread, beside the tests' loops.

    A task that it leaves behind, or one that failed unseen, fails the run at its end.
    """
    from partita_testcluster.apiserver.server import EmbeddedAPIServer

    troubles: list[str] = []
    started: Future[tuple[str, dict[str, Any], Callable[[], object]]] = Future()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: troubles.append(repr(context)))
        stop = asyncio.Event()
        async with EmbeddedAPIServer() as server:
            started.set_result(
                (server.url, server.kubeconfig(), lambda: loop.call_soon_threadsafe(stop.set))
            )
            await stop.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        troubles.extend(f"still running: {task!r}" for task in left)

    def run() -> None:
        try:
            asyncio.run(serve())
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="embedded API server", daemon=True)
    thread.start()
    url, config, stop = started.result(timeout=TIMEOUT)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    yield ApiServer(kind="embedded", url=url.rstrip("/"), kubeconfig=kubeconfig)
    stop()
    thread.join()
    if troubles:
        raise AssertionError("The embedded API server left: " + "; ".join(troubles))


@contextmanager
def real_server() -> Iterator[ApiServer]:
    """Run etcd, kube-apiserver and kube-controller-manager, with the rights of `manifests/`."""
    from apiserver.build import assets
    from apiserver.controlplane import ControlPlane
    from apiserver.rights import install_rights

    binaries = assets()
    with ControlPlane(binaries) as plane:
        install_rights(binaries / "kubectl", plane.kubeconfig)
        yield ApiServer.of(plane)


@contextmanager
def server_of_its_own(config: pytest.Config, folder: Path, *manifests: str) -> Iterator[ApiServer]:
    """Run a server of the kind of this run; a real one has these folders of `manifests/` applied."""
    if config.getoption("--server") == "embedded":
        with embedded_server(folder) as server:
            yield server
        return
    from apiserver.build import assets
    from apiserver.controlplane import ControlPlane

    with ControlPlane(assets()) as plane:
        check_for_tests(plane.kubeconfig)
        run = Kubectl(assets() / "kubectl", plane.kubeconfig, home=folder)
        for name in manifests:
            asyncio.run(run("apply", "-k", str(MANIFESTS / name))).ok()
        yield ApiServer.of(plane)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=["embedded", "apiserver"],
        default="embedded",
        help="API server to test against: partita's embedded one, or a real kube-apiserver "
        "(built by `make test-apiserver`).",
    )


def find_kubectl() -> Path | None:
    """Return the kubectl built with the control plane, or the one on PATH, or None."""
    from apiserver.build import cached

    if (folder := cached()) is not None:
        return folder / "kubectl"
    found = shutil.which("kubectl")
    return Path(found) if found else None


NOT_RUN = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOT_RUN] = {}
    if config.getoption("--server") == "apiserver" and not config.option.collectonly:
        from apiserver.build import cached

        # Building takes minutes, longer than a test may; it is a step of its own.
        if cached() is None:
            raise pytest.UsageError(
                "The real control plane is not built: run `make test-apiserver`, or "
                "set KUBEBUILDER_ASSETS."
            )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a missing kubectl, to be told at the end."""
    if find_kubectl() is not None:
        return
    without = {item for item in items if "kubectl" in getattr(item, "fixturenames", ())}
    reason = "kubectl is not on PATH and `make test-apiserver` has not built it"
    leave_out(config, items, without, reason)
    if without and (told := getattr(config, "workeroutput", None)) is not None:
        told["not run"] = config.stash[NOT_RUN]


def leave_out(
    config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item], reason: str
) -> None:
    """Take tests out of a run, and tell their number and the reason at its end."""
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
        config.stash[NOT_RUN][reason] = len(left_out)


def within(folder: Path, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in a folder: by text, since paths of 6,000 tests take a second."""
    return [item for item in items if str(item.path).startswith(f"{folder}/")]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over from a worker of pytest-xdist what it left out: each collects all tests."""
    node.config.stash[NOT_RUN].update(getattr(node, "workeroutput", {}).get("not run", {}))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for reason, count in config.stash[NOT_RUN].items():
        terminalreporter.write_line(f"NOT RUN: {count} tests, because {reason}.", yellow=True)


@pytest.fixture(scope="session")
def api_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """The API server of this run, the same for all tests."""
    if pytestconfig.getoption("--server") == "apiserver":
        running = real_server()
    else:
        running = embedded_server(tmp_path_factory.mktemp("embedded"))
    with running as server:
        check_for_tests(server.kubeconfig)
        yield server
        if server.audit_log is not None:
            from apiserver.used_rights import note_used

            note_used(pytestconfig, server.audit_log)


@pytest.fixture
async def connections() -> AsyncIterator[None]:
    """Let a test's connections end before its loop does: with TLS the server has a say in it.

    One that stays open fails the test that left it, not the one in which Python finds it.
    """
    yield
    await connections_ended()


async def connections_ended() -> None:
    """Wait until this loop has no connection any more."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    # the loop's own wake-up
    await until(lambda: len(selector.get_map()) <= 1)


@pytest.fixture
async def api(
    api_server: ApiServer, connections: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    """A plain client of the API server.

    All tests of a process share the embedded one, and operators take GPUs for each partition on
    it: one that is left fails the test that left it, not a later one, which waits for its GPU.
    """
    # Three clients a test would read the system's certificates, which takes longer than a job.
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    async with api_server.session() as session:
        yield (client := api_server.api(session))
        if api_server.kind != "embedded":
            return
        found = await client.get("/apis/partita.dev/v1alpha1/gpupartitions")
        left = [one["metadata"] for one in found.body.get("items", ())]
        assert not [meta["name"] for meta in left if "deletionTimestamp" not in meta]


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A fresh namespace, whose deletion is asked for (not awaited) at the test's end."""
    created = await api.post(
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}},
    )
    name = created.ok().body["metadata"]["name"]
    yield name
    jobs = f"/apis/partita.dev/v1alpha1/namespaces/{name}/sharedgpujobs"
    for those in (jobs, f"/api/v1/namespaces/{name}/pods"):  # the next test counts what is written
        await api.delete(those, {"gracePeriodSeconds": 0})
    await api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl on the API server; tests that ask for it are left out where there is none."""
    binary = find_kubectl()
    assert binary is not None
    return Kubectl(binary, api_server.kubeconfig, home=tmp_path_factory.mktemp("kubectl"))
