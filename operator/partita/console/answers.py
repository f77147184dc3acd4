"""JSON answers, and errors of access and of the API server as HTTP errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

from partita.console.access import NotAllowedError, SignInError
from partita.kube.errors import KubernetesError

__all__ = ["json_answer", "refusals"]


@contextmanager
def refusals() -> Iterator[None]:
    """Convert errors of access and of the API server into HTTP errors with the cause."""
    try:
        yield
    except SignInError:
        raise web.HTTPUnauthorized(
            text="this token is missing, expired, or not for this cluster",
            headers={"WWW-Authenticate": "Bearer"},
        ) from None
    except NotAllowedError as error:
        raise web.HTTPForbidden(
            text=f"{error} may not list gpupartitions.partita.dev, ask for a role that may"
        ) from None
    except KubernetesError:
        raise web.HTTPServiceUnavailable(text="the API server does not answer") from None


def json_answer(data: Any) -> web.Response:
    """Return an answer with data as JSON."""
    return web.Response(body=orjson.dumps(data), content_type="application/json")
