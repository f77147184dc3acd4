"""`tools/install.py`: what a newcomer sees while packages are installed."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "install.py"
PRINTED = """\
Ignoring numpy: markers 'python_full_version < "3.12"' don't match your environment
Collecting aiohttp==3.13.2 (from -r requirements/base.txt (line 3))
  Downloading aiohttp-3.13.2-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (8 kB)
Collecting click==8.3.1 (from -r requirements/base.txt (line 9))
  Using cached https://example.org/packages/click-8.3.1-py3-none-any.whl (108 kB)
Downloading aiohttp-3.13.2-cp311-cp311-manylinux_2_28_x86_64.whl (1.7 MB)
Installing collected packages: click, aiohttp
"""


def test_each_package_is_a_line_with_its_size():
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    install = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(install)
    assert list(install.progress(iter(PRINTED.splitlines(keepends=True)), 3)) == [
        "  2 of 3: click 8.3.1 (108 kB)",
        "  3 of 3: aiohttp 3.13.2 (1.7 MB)",
        "  unpacking them",
    ]
