"""JSON answers, and errors of access and of the API server as HTTP errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

from partita.console.access import NotAllowedError, SignInError
from partita.kube.errors import ForbiddenError, KubernetesError, NotFoundError, UnavailableError

__all__ = ["json_answer", "refusals", "viewers_request"]


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


@contextmanager
def viewers_request() -> Iterator[None]:
    """Convert what the API server answers to a request of the viewer into HTTP errors."""
    try:
        yield
    except ForbiddenError as error:
        if error.status == 401:
            raise SignInError from None
        raise web.HTTPForbidden(text=f"{error.message}, ask for a role that may") from None
    except UnavailableError:
        raise
    except NotFoundError as error:
        raise web.HTTPNotFound(text=f"{error.message}: it has been deleted") from None
    except KubernetesError as error:
        raise web.HTTPConflict(text=str(error)) from None


def json_answer(data: Any) -> web.Response:
    """Return an answer with data as JSON."""
    return web.Response(body=orjson.dumps(data), content_type="application/json")
