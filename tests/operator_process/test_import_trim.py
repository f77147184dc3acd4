"""What operator and agent leave out of their memory, in processes of their own."""

from __future__ import annotations

import asyncio
import sys

UNUSED = {"requests", "oauthlib", "websocket", "rich", "numpy", "grpc"}
TRIM = "from partita.import_trim import leave_out_unused; leave_out_unused()"


async def loaded(before: str, program: str = "agent") -> set[str]:
    """Return the packages that are loaded once a program is, after some other statements."""
    program = (
        f"{before}\nimport sys, partita.{program}.main\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return set(said.decode().split())


async def test_the_agent_loads_only_what_it_uses():
    found = await loaded(TRIM)
    assert found & {*UNUSED, "kopf", "click"} == set()
    assert {"grpclib", "kubernetes", "pynvml", "structlog"} <= found
    assert {"requests", "oauthlib", "rich"} <= await loaded(""), "the list is out of date"


async def test_the_operator_loads_only_what_it_uses():
    found = await loaded(TRIM, "operator")
    assert found & UNUSED == set()
    assert {"kopf", "kubernetes", "structlog"} <= found
    assert {"requests", "oauthlib", "rich"} <= await loaded("", "operator")


async def test_what_others_use_of_the_packages_is_still_to_be_had():
    await loaded(
        f"{TRIM}\n"
        "import rich.console, structlog\n"
        "from kubernetes.aio import config\n"
        "from kubernetes.aio.client import ApiClient, Configuration\n"
        "assert config.load_incluster_config and ApiClient and Configuration"
    )
