"""Runs commands as a shell would, and compares what they print with files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpu.fake import fake_gpu_build, fake_gpus
from partita.cli import main
from partita.times import Times
from partita_policies import registry
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds
from support.output import check_output

__all__ = ["fake_gpu_build", "fake_gpus"]

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def few_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a policy that is added leave what is printed as it is."""
    found = [e for e in registry._entry_points() if e.name in {"fifo", "sjf", "tetris"}]
    monkeypatch.setattr(registry, "_entry_points", lambda: found)


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process, without a kubeconfig, 100 columns wide.

    It must end with `code`, or with any if this is None. JSON must fit the command's schema.
    """
    for name in ("KUBECONFIG", "POD_NAME", "PARTITA_NAMESPACE", "PARTITA_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(
        *args: str | Path,
        code: int | None = 0,
        stdin: str | bytes | None = None,
        times: Times | None = None,
    ) -> Result:
        result = CliRunner().invoke(main, [str(arg) for arg in args], input=stdin, obj=times)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code in (None, result.exit_code), result.output
        if result.stdout and ("-o", "json") in pairwise(args):
            check_output(str(args[0]), result.stdout)
        return result

    return run


@pytest.fixture
def text_golden(golden: Callable[[Path, str], None]) -> Callable[[str, str], None]:
    """Compare a text with a golden file of this name, or write it there (`--update-golden`)."""
    return lambda name, text: golden(GOLDEN / name, text)


@pytest.fixture
async def partita(
    api_server: ApiServer, api: Api, invoke: Callable[..., Result]
) -> Callable[..., Awaitable[Result]]:
    """Run a command on the API server of this run, which has Partita's kinds."""
    await install_crds(api)

    async def run(*args: str, code: int | None = 0) -> Result:
        kubeconfig = ("--kubeconfig", str(api_server.kubeconfig))
        return await asyncio.to_thread(invoke, *args, *kubeconfig, code=code)

    return run
