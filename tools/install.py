"""Install the packages of a file into this environment, and say how far it has come.

Usage: install.py requirements/base.txt
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["main", "progress"]

PIP = (
    *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"),
    *("--no-compile", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
    *("--progress-bar", "off", "--requirement"),
)
FETCHED = re.compile(
    r" *(?:Downloading|Using cached) (?:\S*/)?(\w+)-([^-]+)-\S*\.whl(?: (\(.*\)))?$"
)
NOT_NEEDED = ("Ignoring ", "Requirement already satisfied")


def progress(lines: Iterator[str], count: int) -> Iterator[str]:
    """Yield what to show for the lines that pip prints: a line a package, with its size."""
    fetched = 0
    for line in lines:
        if found := FETCHED.match(line.rstrip()):
            fetched += 1
            name, version, size = found.groups()
            yield f"  {fetched} of {count}: {name} {version} {size or ''}".rstrip()
        elif line.startswith("Installing collected packages"):
            yield "  unpacking them"
        elif line.startswith(NOT_NEEDED):
            fetched += 1


def main() -> int:
    """Install what a file lists, and return pip's exit code."""
    (file,) = sys.argv[1:]
    count = len(re.findall("^[a-zA-Z].*==", Path(file).read_text(encoding="utf-8"), re.MULTILINE))
    with subprocess.Popen([*PIP, file], stdout=subprocess.PIPE, text=True) as pip:  # noqa: S603
        assert pip.stdout is not None  # noqa: S101
        for line in progress(pip.stdout, count):
            print(line, flush=True)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
