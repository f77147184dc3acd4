"""`make test-release`: builds one release a run, and installs it into an empty environment."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster import images
from support.clusters import find_kubectl

ROOT = Path(__file__).parents[2]
URL = "https://example.com/partita/v0"
EPOCH = "1700000000"
NEW_KEY = ("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


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
            given = {"PATH": os.pathsep.join(path), "SOURCE_DATE_EPOCH": EPOCH}
            key = base / "release" / "key.pem"
            subprocess.run([*NEW_KEY, "-out", key], check=True)
            with images.engine() as engine:
                done = subprocess.run(
                    [
                        *(sys.executable, ROOT / "tools" / "release.py", made.folder),
                        *("--url", URL, "--key", key, "--trial", made.trial),
                    ],
                    env={**os.environ, **engine, **given},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            assert done.returncode == 0, done.stderr
        assert made.folder.exists(), "another process could not make it"
    return made
