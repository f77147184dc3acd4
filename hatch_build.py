"""Build hook of hatchling: compiles the C sources of the policies into one library.

The library depends on nothing but the C library, so one wheel a platform serves every Python.
"""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

_FOLDER = Path("policies/partita_policies/native")
_LIBRARY = _FOLDER / "libpartita.so"
# No -march=native and no fused operations: the same decisions on every machine of an architecture.
_OPTIONS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-s")
_ZIG = "ziglang>=0.13"


class CustomBuildHook(BuildHookInterface[Any]):
    """Compile the library and mark the wheel as one for this platform."""

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling: a compiler, if the machine has none."""
        return [] if installed_compiler() or self.target_name == "sdist" else [_ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an sdist has the sources only."""
        del version
        if self.target_name == "sdist":
            return
        compile_library(Path(self.root))
        build_data["artifacts"].append(str(_LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{next(platform_tags())}"


def compile_library(root: Path) -> None:
    """Compile all sources, and replace the library in one step: a program may have it open."""
    sources = sorted(str(path) for path in (root / _FOLDER).glob("*.c"))
    target = root / _LIBRARY
    made = target.with_name(f"{target.name}.{os.getpid()}")
    subprocess.run(  # noqa: S603 - the user's own compiler
        [*_compiler(), *_OPTIONS, "-o", str(made), *sources, "-lm"], check=True
    )
    made.replace(target)


def installed_compiler() -> list[str]:
    """Return the command of the compiler that is installed here, or nothing."""
    named = shlex.split(os.environ.get("CC", ""))
    found = (shutil.which(name) for name in ("cc", "gcc", "clang"))
    return named or [path for path in found if path][:1]


def _compiler() -> list[str]:
    if installed := installed_compiler():
        return installed
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    sys.exit(
        f"Partita compiles a part in C, and {platform.node()} has no compiler: install gcc "
        "(on Debian and Ubuntu: apt-get install gcc libc6-dev), name one by CC, or run "
        "`pip install ziglang`."
    )
