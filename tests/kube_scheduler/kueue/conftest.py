"""`make test-kueue`: what needs Kueue, which Go builds; left alone unless asked for."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from apiserver.binaries import KUEUE, MANIFESTS
from apiserver.build import assets, cached
from kube_scheduler.kueue.kueue import Kueue
from kube_scheduler.kueue.queues import GROUP, SETTINGS, Queues
from kube_scheduler.plane import SchedulingControlPlane
from support.api import Api
from support.on_request import asked_for

SUBMISSIONS = 200
"""Of a run of `make test-kueue`; issue 17 asks for as many."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--submissions",
        type=int,
        default=SUBMISSIONS,
        help="Number of random submissions under tight quotas (default: %(default)s).",
    )
    parser.addoption(
        "--seed", type=int, default=1, help="Seed of the submissions (default: %(default)s)."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a machine that lacks something, before any test: none is left out silently."""
    if not asked_for(config, "--kueue"):
        return
    if None in {cached(what=what) for what in (MANIFESTS, KUEUE)}:
        raise pytest.UsageError(
            "NOT RUN: no test with Kueue, because it is not built: run `make test-kueue`."
        )


@pytest.fixture(scope="session")
def kueue(plane: SchedulingControlPlane) -> Iterator[Kueue]:
    """Kueue, the same for all tests of the run."""
    with tempfile.TemporaryDirectory(prefix="partita-kueue-") as folder:
        program, tools = assets(what=KUEUE) / "kueue", assets(what=MANIFESTS)
        with Kueue(plane, assets() / "kubectl", program, tools, Path(folder), SETTINGS) as running:
            yield running


@pytest.fixture
async def recorded(recorded: Mapping[str, str], kueue: Kueue, api: Api) -> Mapping[str, str]:
    """Kueue's Workloads too, as soon as the API server has prepared their storage."""
    path = f"{GROUP}/workloads"
    await api.until(path, lambda _: True)
    return {**recorded, "workloads": path}


@pytest.fixture
async def queues(kueue: Kueue, api: Api) -> AsyncIterator[Queues]:
    """Kueue's queues; they go at the end."""
    queues = Queues(api)
    yield queues
    await queues.clean()
