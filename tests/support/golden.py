"""Golden files: what is built is compared with a file; `--update-golden` rewrites the files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override


class _Dumper(yaml.SafeDumper):
    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is built into the golden files, to be read in the diff before a commit",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, Any], None]:
    """Compare a value with a YAML file or a text with another file, or write it there."""

    def check(path: Path, value: Any) -> None:
        text = path.suffix == ".txt"
        if request.config.getoption("--update-golden"):
            written = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100)
            path.write_text(value if text else written)
        assert path.exists(), f"{path} is missing: run pytest --update-golden and read the file"
        assert value == (path.read_text() if text else yaml.safe_load(path.read_text()))

    return check
