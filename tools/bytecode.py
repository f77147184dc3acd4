"""Compile only the modules that the operator and the agent import: the image's last step.

They use a small part of the installed modules. Without bytecode every start would take a second
more; with the bytecode of all modules the image would take 30 MB more. Bytecode with a hash of its
source is the same in every build, unlike bytecode with a file's date.

The target is a root folder in which Partita is installed. All bytecode is written below it, also
the bytecode of modules that are located outside.
"""

import importlib
import sys
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode, compile  # noqa: A004 - named so there

__all__ = ["main"]

STARTED = (
    "partita.agent.main",
    "partita.cli.cluster.agent",
    "partita.cli.cluster.run",
    "partita.process.main",
)
"""Modules that the containers' commands import."""


def main(target: Path) -> int:
    """Compile every module that importing `STARTED` loads; return the exit code."""
    sys.dont_write_bytecode = True
    sys.path[:0] = map(str, target.glob("opt/*/lib/python*/site-packages"))
    for name in STARTED:
        importlib.import_module(name)
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    sources = sorted(file for file in files if file and file.endswith(".py") and file != __file__)
    for source in sources:
        place = source.removeprefix(str(target))
        compile(
            source,
            cfile=str(target) + cache_from_source(place),
            dfile=place,
            doraise=True,
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
    print(f"Compiled {len(sources)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
