"""Checks rules of this repository that linters do not cover; run by `make lint`.

It writes no files. Each finding contains the place, the problem and what to do.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import chart
import reference
from flaky import flaky
from lock import FILES, ROOT, header
from partita.constants import GROUP
from partita.models import crd

__all__ = ["main"]

MAX_MODULE_LINES = 400
SOURCE_ROOTS = ("operator", "policies")
FOREIGN = {"build", "dist", "__pycache__"}
"""Folders without source files. Folders with a leading dot are skipped, too."""
TEXT = {"", ".cfg", ".ini", ".md", ".mod", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}

FORBIDDEN = {
    re.compile(r"(?<![\w.$}>~-])/(?:work|root|home/\w+|Users/\w+)/"): "is a path of one machine",
    re.compile(
        r"//[\w.-]*(?:pypi\.org|pythonhosted\.org|(?:proxy|sum)\.golang\.org|npmjs\.org"
        r"|crates\.io|deb\.debian\.org)"
    ): "names a download address: versions and hashes are enough",
}
"""Patterns that no file may contain, and the reason."""
PATHS = re.compile(
    r"(?<![\w./$({-])(?:crds|docs|examples|manifests|operator|policies|tests|tools)/[\w./*-]*[\w*]"
)
"""A path of this repository, in a file that builds or tests it."""
BUILD_FILES = (".ci/run", "Dockerfile", "Makefile", "Tiltfile", "pyproject.toml")
PROGRAMS = {"acceptance", "bench", "chaos"}
"""Folders of tests with programs that measure, or go on for a time."""


def main() -> int:
    """Print every finding; return the exit code."""
    findings = [
        *stale_crds(),
        *stale_reference(),
        *stale_locks(),
        *shadowing_packages(),
        *shared_class_names(),
        *contents(),
        *missing_paths(),
        *flaky_tests(),
    ]
    for finding in findings:
        print(finding)
    print(f"Repository rules: {len(findings)} findings" if findings else "Repository rules hold")
    return bool(findings)


def stale_crds() -> Iterator[str]:
    """Yield CRDs that differ from the models."""
    wanted = {crd.file_name(definition): crd.render(definition) for definition in crd.crds()}
    files = (ROOT / "crds").glob(f"{GROUP}_*")
    found = {path.name: path.read_text(encoding="utf-8") for path in files}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            yield f"crds/{name}: differs from the models: run make crds, remove what has no model"


def stale_reference() -> Iterator[str]:
    """Yield reference pages that differ from the models and commands."""
    wanted = reference.pages()
    found = {
        path.relative_to(reference.FOLDER).as_posix(): path.read_text(encoding="utf-8")
        for path in reference.FOLDER.rglob("*.*")
    }
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            yield f"docs/reference/{name}: not what models and --help say: run make reference"


def stale_locks() -> Iterator[str]:
    """Yield lock files that were resolved from another pyproject.toml."""
    for name in FILES:
        path = ROOT / name
        if not path.exists() or not path.read_text(encoding="utf-8").startswith(header()):
            yield f"{name}: older than the dependencies in pyproject.toml: run make lock"


def shadowing_packages() -> Iterator[str]:
    """Yield source roots that are packages; `operator` would shadow the standard library's."""
    for folder in SOURCE_ROOTS:
        if (ROOT / folder / "__init__.py").exists():
            yield f"{folder}/__init__.py: {folder}/ is no package: remove the file"


def shared_class_names() -> Iterator[str]:
    """Yield classes of the product with the same name."""
    places: dict[str, list[str]] = {}
    for folder in SOURCE_ROOTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    places.setdefault(node.name, []).append(place)
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{found[1]}: class {name} has the name of the one in {found[0]}: rename one"


def contents() -> Iterator[str]:
    """Yield modules that are too long, forbidden patterns, and a repeated address."""
    address = chart.repository()
    for path in files():
        lines = path.read_text(encoding="utf-8").splitlines()
        name = path.relative_to(ROOT)
        if name.parts[0] in SOURCE_ROOTS and name.suffix == ".py" and len(lines) > MAX_MODULE_LINES:
            yield f"{name}: {len(lines)} lines: split it, {MAX_MODULE_LINES} are the most"
        if path == Path(__file__):
            continue
        if address in "\n".join(lines) and name.name != "pyproject.toml":
            yield f"{name}: names the repository's address: only pyproject.toml does"
        for number, line in enumerate(lines, start=1):
            for pattern, reason in FORBIDDEN.items():
                if match := pattern.search(line):
                    yield f"{name}:{number}: {match[0]!r} {reason}"


def missing_paths() -> Iterator[str]:
    """Yield paths that a file names which builds or tests, and that do not exist."""
    for name in BUILD_FILES:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            for path in PATHS.findall(line):
                if not any(ROOT.glob(path)):
                    yield f"{name}:{number}: {path} does not exist: name what took its place"


def flaky_tests() -> Iterator[str]:
    """Yield what makes a test fail on a busy machine, or because of the test before it."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT)
        source = path.read_text(encoding="utf-8")
        for line, problem in flaky(source, waits=name.parts[1] not in PROGRAMS):
            yield f"{name}:{line}: {problem}"


def files() -> Iterator[Path]:
    """Yield the text files of the repository."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(
            f for f in folders if f not in FOREIGN and (f == ".ci" or not f.startswith("."))
        )
        for name in sorted(names):
            path = Path(folder, name)
            if (
                path.suffix in TEXT
                and path.is_file()
                and name != ".git"
                and not name.startswith(".coverage")
            ):
                yield path


if __name__ == "__main__":
    sys.exit(main())
