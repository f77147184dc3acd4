"""What every suite of this repository can use; each plug-in says what it offers."""

import pytest
from hypothesis import settings

pytest_plugins = [
    "docs.not_run",
    "support.clusters",
    "support.failure_reports",
    "support.golden",
    "support.on_request",
    "support.pending_tasks",
    "support.ports",
    "support.smoke",
    "support.unclosed",
    "apiserver.used_rights",
]

# Machines are shared and noisy: how long an example takes says nothing.
settings.register_profile("partita", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=200)  # of `make coverage`
settings.register_profile("quick", deadline=None, max_examples=20)  # of `make check`
settings.load_profile("partita")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run only what talks to the API server when that is a real one: the rest is `make test`."""
    if config.getoption("--server") == "embedded":
        return
    talking = [item for item in items if "api_server" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(talking)])
    items[:] = talking
