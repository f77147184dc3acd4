"""`make test-release`: builds one release a run, and installs it into an empty environment."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.clusters import find_kubectl

ROOT = Path(__file__).parents[2]
URL = "https://example.com/partita/v0"
EPOCH = "1700000000"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--release",
        action="store_true",
        help="Run the tests of the release; only with their folder as argument.",
    )


def asked_for(config: pytest.Config) -> bool:
    """Whether this run is for the release; elsewhere the option is unknown."""
    return bool(config.getoption("--release", default=False))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if asked_for(config) else True


@dataclass(frozen=True)
class Release:
    """What `make release` has made.

    Attributes
    ----------
    folder
        The files to be published.
    trial
        kubectl's plug-in, unpacked and called once.
    """

    folder: Path
    trial: Path

    def file(self, pattern: str) -> Path:
        """Return the only file of such a name."""
        (found,) = self.folder.glob(pattern)
        return found

    @property
    def wheels(self) -> list[Path]:
        """One for each platform."""
        return sorted(self.folder.glob("*.whl"))


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release; the processes of pytest-xdist make one for all."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    made = Release(base / "release" / "dist", base / "release" / "trial")
    with (base / "release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.folder.parent.exists():
            made.trial.mkdir(parents=True)
            kubectl = find_kubectl()
            path = [*([str(kubectl.parent)] if kubectl else []), os.environ["PATH"]]
            done = subprocess.run(
                [
                    *(sys.executable, ROOT / "tools" / "release.py", made.folder),
                    *("--url", URL, "--trial", made.trial),
                ],
                env={**os.environ, "PATH": os.pathsep.join(path), "SOURCE_DATE_EPOCH": EPOCH},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert made.folder.exists(), "another process could not make it"
    return made
