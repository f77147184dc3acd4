from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from cluster.dockerfile import Copy, DockerfileError, Ignored, Run, parse

ROOT = Path(__file__).parents[2]


def test_stages_with_their_steps_and_what_the_last_one_starts_with():
    first, last = parse("""
# a comment
FROM debian:trixie-slim AS build
RUN --mount=type=cache,target=/cache one \\
# in between
 && two 'a  b'
COPY a b /there/

FROM scratch
COPY --from=build /root-files /
ENV PATH=/bin HOME=/
USER 65532:65532
WORKDIR /
ENTRYPOINT ["partita", "run"]
""")
    assert (first.base, first.name) == ("debian:trixie-slim", "build")
    assert first.steps == [
        Run("one && two 'a  b'", ("/cache",)),
        Copy(("a", "b"), "/there/"),
    ]
    assert last.steps == [Copy(("/root-files",), "/", "build")]
    assert last.config == {
        "Env": ["PATH=/bin", "HOME=/"],
        "User": "65532:65532",
        "WorkingDir": "/",
        "Entrypoint": ["partita", "run"],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no FROM"),
        ("RUN true", "line 1: RUN stands before FROM"),
        ("FROM a\nHEALTHCHECK NONE", "line 2: HEALTHCHECK is not understood"),
        ("FROM --platform=x a", "line 1: FROM takes"),
        ("FROM a\nCOPY --chmod=1 a b", "line 2: --chmod is not understood"),
        ("FROM a\nCOPY *.py b", "plain names"),
        ("FROM a\nRUN --mount=type=secret,target=/s x", "of mounts only"),
        ("FROM a\nENTRYPOINT partita", "JSON list"),
        ("FROM a\nENV A b", "NAME=VALUE"),
    ],
)
def test_what_is_not_understood_is_an_error_with_its_line(text: str, message: str):
    with pytest.raises(DockerfileError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("secret.txt", True),
        ("requirements/dev.txt", True),
        ("requirements/base.txt", False),
        ("operator/partita/cli/cluster/run.py", False),
        ("operator/partita/__pycache__/a.pyc", True),
        ("operators/a.py", True),
    ],
)
def test_the_last_line_that_matches_decides_what_is_ignored(path: str, *, ignored: bool):
    rules = Ignored("# rules\n*\n!operator\n!requirements/base.txt\n**/__pycache__\n")
    assert rules(PurePosixPath(path)) is ignored


def test_a_pattern_that_is_not_understood_is_an_error():
    with pytest.raises(DockerfileError, match=r"a/\*\*/b"):
        Ignored("a/**/b")


def test_a_copy_of_nothing_is_an_error(tmp_path: Path):
    with pytest.raises(DockerfileError, match="COPY docs: the context has no such file"):
        Ignored("").files(tmp_path, "docs")


def test_the_images_files_are_all_in_its_context_and_nothing_else_of_theirs():
    stages = parse((ROOT / "Dockerfile").read_text())
    ignored = Ignored((ROOT / ".dockerignore").read_text())
    copied = {
        name
        for stage in stages
        for step in stage.steps
        if isinstance(step, Copy) and not step.stage
        for source in step.sources
        for name in ignored.files(ROOT, source)
    }
    assert PurePosixPath("operator/partita/agent/main.py") in copied
    assert not [name for name in copied if name.suffix == ".pyc"]
    top = {name.parts[0] for name in copied}
    allowed = {"operator", "policies", "examples", "requirements", "tools"}
    assert top - allowed == {"README.md", "pyproject.toml"}
    image = stages[-1]
    assert image.base == "scratch"
    assert image.config["User"] != "root"
