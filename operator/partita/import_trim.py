"""Prevents imports by packages of the operator and the agent that neither of them uses.

They take 14 MB of the operator, and of the agent on each node with a GPU (docs/performance.md,
"What made it fast").
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec

__all__ = ["leave_out_extras", "leave_out_unused", "without_certificates"]


def leave_out_extras() -> None:
    """Prevent the import of Kubernetes' synchronous client and the search for pydantic's plugins.

    No command uses them, and they take a fifth of the time in which it starts. Call this before
    importing its modules.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # These packages import all their modules: the synchronous client with requests and OAuth,
    # watches, leader election, a reader of YAML files. Registering them without executing them
    # prevents this. Explicit imports of their modules still work.
    for package in ("kubernetes", "kubernetes.aio", "kubernetes.aio.utils"):
        if package not in sys.modules and (spec := find_spec(package)) is not None:
            sys.modules[package] = module_from_spec(spec)


def leave_out_unused() -> None:
    """Prevent unused imports in this process; call it before the modules of operator or agent.

    Not for programs that use more of these packages.
    """
    leave_out_extras()
    # structlog imports rich for coloured tracebacks, and greenlet, if they are installed.
    absent = {"rich", "greenlet"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    import structlog  # noqa: F401, PLC0415

    for package in absent:
        del sys.modules[package]


@contextmanager
def without_certificates() -> Iterator[None]:
    """Prevent TLS contexts that are created in the block from reading the system's certificates.

    This takes 50 ms a context. For contexts that no connection uses.
    """
    name = "SSL_CERT_FILE"  # `X509_get_default_cert_file_env` of OpenSSL
    kept = os.environ.get(name)
    os.environ[name] = os.devnull
    try:
        yield
    finally:
        if kept is None:
            del os.environ[name]
        else:
            os.environ[name] = kept
