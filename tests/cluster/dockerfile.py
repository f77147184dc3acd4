"""Reads the part of the Dockerfile language that this repository's Dockerfile uses.

https://docs.docker.com/reference/dockerfile/ is the language's reference. What is not understood
is an error: a build that passes over an instruction would test another image.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

__all__ = ["Copy", "DockerfileError", "Ignored", "Run", "Stage", "parse"]


class DockerfileError(Exception):
    """The Dockerfile has something that is not understood here; the message says where."""


@dataclass(frozen=True)
class Run:
    """A command for the stage's shell, with the folders that are kept from build to build."""

    command: str
    caches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Copy:
    """Files that come from the context, or from another stage."""

    sources: tuple[str, ...]
    target: str
    stage: str = ""


@dataclass
class Stage:
    """One stage: what it starts from, what is done, and how a container of it starts."""

    base: str
    name: str
    steps: list[Run | Copy] = field(default_factory=list)
    config: dict[str, object] = field(default_factory=dict)


def parse(text: str) -> list[Stage]:
    """Return the stages in order; the last one is the image.

    Raises
    ------
    DockerfileError
        An instruction, or a form of one, is not understood.
    """
    stages: list[Stage] = []
    for number, word, rest in _instructions(text):
        if word != "FROM" and not stages:
            raise DockerfileError(f"line {number}: {word} stands before FROM")
        match word:
            case "FROM":
                stages.append(_stage(number, rest, stages))
            case "RUN":
                options, command = _options(number, rest, {"mount"})
                stages[-1].steps.append(Run(command, tuple(_cache(number, o) for o in options)))
            case "COPY":
                stages[-1].steps.append(_copy(number, rest))
            case "ENV" | "USER" | "WORKDIR" | "ENTRYPOINT":
                _configure(stages[-1].config, number, word, rest)
            case _:
                raise DockerfileError(f"line {number}: {word} is not understood here")
    if not stages:
        raise DockerfileError("the file has no FROM")
    return stages


def _instructions(text: str) -> list[tuple[int, str, str]]:
    """Join continued lines; comments among them go, as in a shell they would not."""
    found: list[tuple[int, str, str]] = []
    started, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        started = started or number
        parts.append(line.strip().removesuffix("\\"))
        if line.endswith("\\"):
            continue
        word, _, rest = " ".join(part.strip() for part in parts).partition(" ")
        found.append((started, word.upper(), rest.strip()))
        started, parts = 0, []
    return found


def _stage(number: int, rest: str, before: Sequence[Stage]) -> Stage:
    match rest.split():
        case [base]:
            name = str(len(before))
        case [base, "AS" | "as", name]:
            pass
        case _:
            raise DockerfileError(f"line {number}: FROM takes an image and AS with a name here")
    return Stage(base=base, name=name)


def _configure(config: dict[str, object], number: int, word: str, rest: str) -> None:
    """Note what a container of the image starts with, under the image configuration's names."""
    if word == "ENV":
        variables = shlex.split(rest)
        if any("=" not in variable for variable in variables):
            raise DockerfileError(f"line {number}: ENV takes NAME=VALUE here")
        config["Env"] = variables
    elif word == "ENTRYPOINT":
        if not rest.startswith("["):
            raise DockerfileError(f"line {number}: ENTRYPOINT takes a JSON list here")
        config["Entrypoint"] = json.loads(rest)
    else:
        config["User" if word == "USER" else "WorkingDir"] = rest


def _options(number: int, rest: str, known: set[str]) -> tuple[list[str], str]:
    """Split off ``--name=value`` options; return the values, and what follows."""
    values = []
    while match := re.match(r"--([a-z]+)=(\S+)\s+", rest):
        if match[1] not in known:
            raise DockerfileError(f"line {number}: --{match[1]} is not understood here")
        values.append(match[2])
        rest = rest[match.end() :]
    return values, rest


def _cache(number: int, mount: str) -> str:
    fields = dict(part.partition("=")[::2] for part in mount.split(","))
    if fields.keys() != {"type", "target"} or fields["type"] != "cache":
        raise DockerfileError(f"line {number}: of mounts only type=cache,target=... is understood")
    return fields["target"]


def _copy(number: int, rest: str) -> Copy:
    stages, rest = _options(number, rest, {"from"})
    *sources, target = rest.split()
    if not sources or len(stages) > 1 or any(set(name) & set("*?[$") for name in sources):
        raise DockerfileError(f"line {number}: COPY takes plain names and a target here")
    return Copy(tuple(sources), target, *stages)


class Ignored:
    """What ``.dockerignore`` keeps from the build: the last line that matches decides.

    https://docs.docker.com/build/concepts/context/#dockerignore-files. Of ``**`` only a leading
    one is understood.
    """

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._patterns = [line for line in lines if line and not line.startswith("#")]
        for pattern in self._patterns:
            if "**" in pattern.removeprefix("**/"):
                raise DockerfileError(f".dockerignore: {pattern} is not understood here")

    def __call__(self, path: PurePosixPath) -> bool:
        """Say whether a file of the context is left out."""
        ignored = False
        for pattern in self._patterns:
            if any(_matches(part, pattern.removeprefix("!")) for part in [path, *path.parents]):
                ignored = not pattern.startswith("!")
        return ignored

    def files(self, context: Path, source: str) -> list[PurePosixPath]:
        """Return the files at and below ``source`` that are not left out, in order.

        Raises
        ------
        DockerfileError
            There is none.
        """
        top = context / source
        paths = [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file())
        names = [PurePosixPath(path.relative_to(context).as_posix()) for path in paths]
        found = [name for name in names if not self(name)]
        if not found:
            raise DockerfileError(f"COPY {source}: the context has no such file")
        return found


def _matches(path: PurePosixPath, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(path.name, pattern.removeprefix("**/"))
    parts, wanted = path.parts, PurePosixPath(pattern).parts
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
