"""What a page of the documentation shows: commands, their output, and files.

A page is ordinary Markdown. These blocks of it are read:

``sh``
    Commands. Each must end with exit code 0.
``console``
    Commands after ``$ ``, continued after ``> ``, each followed by the output that it must print.
``yaml title="NAME"``
    A file that the commands below it find in their folder.

In shown output ``...`` stands for any text of a line, and for any lines when it stands alone.
Comments of the form ``<!-- test: ... -->`` are instructions for the test. They hold for the next
block, except the first four, which hold from there on:

``cluster``
    The page needs a cluster: simulated nodes and the real operator. Pages that only read it share
    one, in which the examples are applied; see `conftest.py`.
``cluster alone``
    The page changes what other pages read: it gets an empty cluster of its own.
``run COMMANDS``
    Commands that a reader does not see, such as those that create what the page is about.
``set NAME=VALUE``
    The word NAME in a command of the page stands for VALUE.
``varies WORDS``
    These words of the shown output differ from run to run, such as ages.
``until TEXT``
    The command runs until Ctrl-C, which is sent once it has printed TEXT.
``not-run REASON``
    The test does not run these commands. `NOT_RUN` explains each reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

__all__ = ["NOT_RUN", "PAGES", "ROOT", "Command", "File", "Hidden", "Page", "read_page"]

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN = {
    "cluster-tool": "needs kind, k3s, minikube, a registry or a real API server",
    "make": "a target of the Makefile, which .ci/run or a developer runs",
    "port-forward": "the embedded API server has no port forwarding",
    "real-cluster": "needs Deployments, RBAC or evictions; tests/cluster and tests/console run it on "
    "a real cluster",
    "argocd": "needs Argo CD or Flux in the cluster; `make test-gitops` runs it",
    "gpu-node": "runs on a node with an NVIDIA GPU",
    "shell": "prepares the reader's own shell; the test does the same",
    "recordings": "needs the recordings of a cluster; tests/cli/test_replay.py has some",
    "own-policy": "needs the reader's own policy; tests/policies runs `check_policy` on policies",
}
"""Why commands are not run here; `not-run` names one of these."""

_FOR_NEXT_BLOCK = {"varies", "until", "not-run"}
_FENCE = re.compile(r"( *)(`{3,})(\S*) *(.*)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a page and what the page says of it."""

    text: str
    line: int
    output: str | None = None
    """What it must print; None where the page does not show it."""
    varies: tuple[str, ...] = ()
    until: str = ""
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file that a page shows."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Hidden:
    """Commands that prepare what the next commands need."""

    text: str
    line: int


@dataclass(slots=True)
class Page:
    """A page's steps, in its order."""

    path: Path
    steps: list[Command | File | Hidden] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    cluster: str = ""
    """`shared` or `alone`; empty if it needs none."""

    @property
    def commands(self) -> list[Command]:
        """The commands that a reader sees."""
        return [step for step in self.steps if isinstance(step, Command)]


def read_page(path: Path) -> Page:
    """Read a page's blocks and instructions.

    Raises
    ------
    KeyError, ValueError
        An instruction or a reason is unknown, or a block does not end.
    """
    page, given = Page(path), dict[str, str]()
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if line.strip().startswith("<!-- test: "):
            name, value = _instruction(line.strip(), lines)
            if name == "run":
                page.steps.append(Hidden(value, number))
            elif name == "set":
                page.words.update(word.split("=", 1) for word in shlex.split(value))
            elif name == "cluster":
                page.cluster = {"": "shared", "alone": "alone"}[value]
            elif name in _FOR_NEXT_BLOCK:
                given[name] = value
            else:
                raise ValueError(f"{path.name}:{number}: no instruction {name!r}")
        elif fence := _FENCE.fullmatch(line):
            _, ticks, language, title = fence.groups()
            body = _body(ticks, lines)
            if language in {"sh", "console"}:
                page.steps += _commands(body, number + 1, language, given)
            elif name := re.search(r'title="([^"]+)"', title):
                page.steps.append(File(name[1], body))
            given = {}
    for command in page.commands:
        if command.not_run and command.not_run not in NOT_RUN:
            raise ValueError(f"{path.name}:{command.line}: no reason {command.not_run!r}")
    return page


def _instruction(line: str, lines: Iterator[tuple[int, str]]) -> tuple[str, str]:
    text = line.removeprefix("<!-- test: ")
    while not text.endswith("-->"):
        text += "\n" + next(lines)[1].strip()
    name, _, value = text.removesuffix("-->").strip().partition("\n" if "\n" in text else " ")
    return name, value.strip()


def _body(ticks: str, lines: Iterator[tuple[int, str]]) -> str:
    body = []
    for _, line in lines:
        if line.strip() == ticks:
            return dedent("\n".join(body))
        body.append(line)
    raise ValueError("a block has no end")


def _commands(body: str, first: int, language: str, given: dict[str, str]) -> Iterator[Command]:
    about = {
        "varies": tuple(shlex.split(given.get("varies", ""))),
        "until": given.get("until", ""),
        "not_run": given.get("not-run", ""),
    }
    lines = list(enumerate(body.splitlines(), first))
    while lines:
        number, text = lines.pop(0)
        if language == "console":
            text = text.removeprefix("$ ")
            while lines and lines[0][1].startswith("> "):
                text += "\n" + lines.pop(0)[1].removeprefix("> ")
            output = []
            while lines and not lines[0][1].startswith("$ "):
                output.append(lines.pop(0)[1])
            yield Command(text, number, "\n".join(output), **about)
        else:
            while lines and not _complete(text):
                text += "\n" + lines.pop(0)[1]
            if text.strip() and not text.lstrip().startswith("#"):
                yield Command(text, number, **about)


def _complete(text: str) -> bool:
    """Tell whether a shell would run this, and not wait for another line."""
    if here := re.search(r"<<-?\s*['\"]?(\w+)", text):
        return f"\n{here[1]}\n" in f"{text}\n"
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.endswith("\\")
