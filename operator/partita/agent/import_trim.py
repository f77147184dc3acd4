"""Prevents imports that the agent's packages make and the agent does not use.

Each node with a GPU needs memory for what is imported. Resident memory after importing the agent
(`make bench-agent`): 83 MB without this module, 70 MB with it.
"""

import sys
from importlib.util import find_spec, module_from_spec

__all__ = ["leave_out_unused"]


def leave_out_unused() -> None:
    """Prevent them in this process; call it before other modules of the agent are imported.

    Not for programs that use more of these packages.
    """
    # They import everything below them: the synchronous client with requests and OAuth, watches,
    # leader election. What is asked for by name, such as kubernetes.aio.client, is found in them.
    for package in ("kubernetes", "kubernetes.aio"):
        if package not in sys.modules and (spec := find_spec(package)) is not None:
            sys.modules[package] = module_from_spec(spec)
    # structlog takes it for coloured tracebacks where it is there; the agent's logs are JSON.
    if "rich" not in sys.modules:
        sys.modules["rich"] = None  # type: ignore[assignment]
        import structlog  # noqa: F401, PLC0415

        del sys.modules["rich"]
