"""Build hook of hatchling: compiles the C sources of the policies into one library.

The library depends on nothing but the C library, so one wheel a platform serves every Python. An
editable install gets the library beside the sources. PARTITA_WHEEL_PLATFORM names another platform
than this one, of those in pyproject.toml; the package `ziglang` has a compiler for them.
"""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

_PACKAGE = "partita_policies/native"
_LIBRARY = "libpartita.so"
# No -march=native and no fused operations: machines of an architecture differ at most in the last
# bit of what their own libm computes (exp, log, pow).
_OPTIONS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-s")
_ZIG = "ziglang>=0.13"
_WANTED = os.environ.get("PARTITA_WHEEL_PLATFORM", "")


class CustomBuildHook(BuildHookInterface[Any]):
    """Compile the library and mark the wheel as one for a platform."""

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling: a compiler, if the machine has none."""
        if self.target_name == "sdist" or (installed_compiler() and not _WANTED):
            return []
        return [_ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an sdist has the sources only."""
        if self.target_name == "sdist":
            return
        sources = Path(self.root) / "policies" / _PACKAGE
        self._made = Path(tempfile.mkdtemp())
        library = compile_library(sources, self._made, self._command())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_WANTED or next(platform_tags())}"
        if version == "editable":
            # In one step, since a program may have the old one open.
            copy = shutil.copy(library, sources / f"{_LIBRARY}.{os.getpid()}")
            copy.replace(sources / _LIBRARY)
        else:
            build_data["force_include"][str(library)] = f"{_PACKAGE}/{_LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is now in the wheel."""
        del version, build_data, artifact_path
        if self.target_name != "sdist":
            shutil.rmtree(self._made)

    def _command(self) -> list[str]:
        if _WANTED:
            return [*_zig(), "-target", self.config["zig-targets"][_WANTED]]
        return _compiler()


def compile_library(sources: Path, folder: Path, command: Sequence[str]) -> Path:
    """Compile all sources into a library in a folder, of which the library does not depend."""
    files = sorted(str(path) for path in sources.glob("*.c"))
    subprocess.run([*command, *_OPTIONS, "-o", _LIBRARY, *files, "-lm"], cwd=folder, check=True)  # noqa: S603
    return folder / _LIBRARY


def _zig() -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc"]


def installed_compiler() -> list[str]:
    """Return the command of the compiler that is installed here, or nothing."""
    named = shlex.split(os.environ.get("CC", ""))
    found = (shutil.which(name) for name in ("cc", "gcc", "clang"))
    return named or [path for path in found if path][:1]


def _compiler() -> list[str]:
    if installed := installed_compiler():
        return installed
    if importlib.util.find_spec("ziglang"):
        return _zig()
    sys.exit(
        f"Partita compiles a part in C, and {platform.node()} has no compiler: install gcc "
        "(on Debian and Ubuntu: apt-get install gcc libc6-dev), name one by CC, or run "
        "`pip install ziglang`."
    )
