"""A hook of MkDocs that changes links to files outside docs/ into links to the repository.

The address of the repository is the one in pyproject.toml.

Pages link to source files by relative paths, which work on GitHub and in an editor. The site does
not contain these files, so each of these links becomes a link to `repo_url`. A link to a missing
file is not changed, and `mkdocs build --strict` fails because of it.
"""

import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

__all__ = ["on_config", "on_page_markdown"]

_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> None:
    """Set the address of the repository."""
    project = tomllib.loads(Path(config.docs_dir).with_name("pyproject.toml").read_text("utf-8"))
    config.repo_url = project["project"]["urls"]["Repository"]
    config.repo_name = config.repo_url.partition("://")[2]


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return a page's text with links to files outside docs/ rewritten."""
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def rewrite(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        path = target.relative_to(docs.parent).as_posix()
        return f"{link[1]}{config.repo_url}/{kind}/main/{path}{link[3]}"

    return _LINK.sub(rewrite, markdown)
