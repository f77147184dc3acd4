"""Opening the connection to the API server."""

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from logging import LogRecord, getLogger
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.request import getproxies_environment

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger
from typing_extensions import override
from yaml import YAMLError

from partita.import_trim import without_certificates
from partita.kube.authorization import authorize
from partita.kube.fence import fence_trace

__all__ = [
    "ConfigException",
    "KubeconfigError",
    "connect",
    "connect_as",
    "current_namespace",
    "session",
]

CONNECTIONS = 64
"""Maximum number of connections to the API server. Each takes 0.3 MB, most of it asyncio's buffer
(`SSLProtocol.max_size` in Lib/asyncio/sslproto.py). Watches use eight, and the jobs that start at
the same time 32. So a slow admission webhook leaves some for other requests; the Lease has its
own."""


class KubeconfigError(Exception):
    """A kubeconfig cannot be used; the message names the file and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the kubeconfig {path} cannot be used: {reason}")


def session(
    api: ApiClient, response: type[aiohttp.ClientResponse] = aiohttp.ClientResponse
) -> aiohttp.ClientSession:
    """Return another session to a client's API server, for kopf; kopf closes it.

    Inside a Pod kopf's own login needs the cluster's DNS, which Partita's client does not use.

    Parameters
    ----------
    response
        The class of the responses.
    """

    async def authorized(
        request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        await authorize(api, request.headers, request.method)
        return await send(request)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=api.rest_client.ssl_context),
        proxy=api.configuration.proxy,
        middlewares=[authorized],
        response_class=response,
    )


def _in_cluster() -> bool:
    """Return whether this process runs in a Pod and no kubeconfig is set."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ


@asynccontextmanager
async def connect(
    kubeconfig: str | None = None, context: str | None = None
) -> AsyncIterator[ApiClient]:
    """Connect with a kubeconfig, the Pod's service account, or the default kubeconfig.

    The service account is used in a Pod if no kubeconfig and no context are given.

    Parameters
    ----------
    kubeconfig
        Path of the kubeconfig, or several paths as in the variable KUBECONFIG.
    context
        Context in the kubeconfig; None for its current context.

    Raises
    ------
    KubeconfigError
        If the kubeconfig cannot be used.
    """
    configuration = Configuration()
    if kubeconfig is None and context is None and _in_cluster():
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        api = _client(configuration)
    else:
        with _readable(kubeconfig) as path:
            await _loader(path, context).load_and_set(configuration)
            _check(configuration)
            api = _client(configuration)
    async with api:
        yield api


@asynccontextmanager
async def connect_as(api: ApiClient, token: str) -> AsyncIterator[ApiClient]:
    """Connect to the API server of a client as the user of a token.

    Nothing by which the client itself signs in is taken over.
    """
    own = api.configuration
    theirs = Configuration(
        host=own.host,
        api_key={"BearerToken": f"Bearer {token}"},
        ssl_ca_cert=own.ssl_ca_cert,
        ca_cert_data=own.ca_cert_data,
    )
    for name in ("verify_ssl", "disable_strict_ssl_verification", "tls_server_name", "proxy"):
        setattr(theirs, name, getattr(own, name))
    async with _client(theirs) as client:
        yield client


def _check(configuration: Configuration) -> None:
    """Refuse what aiohttp would refuse at the first request, each with an error of another kind.

    Raises
    ------
    ConfigException
        The URL of the server or of the proxy, or the token, cannot be used.
    """
    if not str(configuration.host).startswith(("http://", "https://")):
        raise ConfigException(f"the cluster's server is no URL: {configuration.host!r}")
    if (proxy := configuration.proxy) and not re.fullmatch(r"https?://[^/\s]+/?", str(proxy)):
        raise ConfigException(
            "its proxy-url is not of the form http://HOST:PORT, and others are not supported"
        )
    if token := configuration.api_key.get("BearerToken", "").rstrip():  # a file ends with a newline
        if not token.isprintable():
            raise ConfigException("its token contains a line break or another control character")
        configuration.api_key["BearerToken"] = token


def _client(configuration: Configuration) -> ApiClient:
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.trace_configs = [fence_trace()]
    if not getproxies_environment():
        # Otherwise aiohttp searches for a proxy in a thread at each request.
        configuration.client_session_kwargs = {"trust_env": False}
    plain = str(configuration.host).startswith("http://") and not configuration.proxy
    with without_certificates() if plain else nullcontext():
        return ApiClient(configuration)


def current_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace of a kubeconfig's context.

    Raises
    ------
    KubeconfigError
        If the kubeconfig cannot be used.
    """
    if kubeconfig is None and context is None and _in_cluster():
        return "default"
    with _readable(kubeconfig) as path:
        found = _loader(path, context).current_context
        return str(found["context"].get("namespace") or "default")


def _loader(path: str, context: str | None) -> Any:
    if not any(Path(one).expanduser().is_file() for one in path.split(os.pathsep)):
        raise ConfigException("the file does not exist")
    files = KubeConfigMerger(path)  # type: ignore[no-untyped-call]
    names = [str(entry["name"]) for entry in files.config.value["contexts"]]
    if context is not None and context not in names:
        raise ConfigException(f"it has no context {context} (it has: {', '.join(names) or 'none'})")
    if context is None and not files.config.value.get("current-context"):
        raise ConfigException(
            "it has no current context: set one with `kubectl config use-context`"
        )
    return _Loader(  # type: ignore[no-untyped-call]
        config_dict=files.config, config_base_path=None, active_context=context
    )


class _Loader(KubeConfigLoader):
    """Raises what the library only logs: that the credential plugin failed."""

    @override
    async def load_from_exec_plugin(self) -> Any:
        """Run the plugin.

        Raises
        ------
        ConfigException
            It gave no credentials at the first time. Later the old ones are used until the API
            server refuses them.
        """
        run = super().load_from_exec_plugin
        if "token" in vars(self):
            return await run()  # type: ignore[no-untyped-call]
        said: list[str] = []

        def keep(record: LogRecord) -> bool:
            said.append(record.getMessage().removeprefix("exec: "))
            return False

        log = getLogger(KubeConfigLoader.__module__)
        log.addFilter(keep)
        try:
            done = await run()  # type: ignore[no-untyped-call]
        finally:
            log.removeFilter(keep)
        if not said:
            return done
        user: Any = self._user
        # The library prints the bytes of stderr as Python writes them.
        problem = re.sub(r"\bb(['\"])(.*)\1$", r"\2", said[0])
        raise ConfigException(
            f"its credential plugin {user['exec'].safe_get('command')} failed ({problem}): "
            "install it, or log in with it again"
        )


@contextmanager
def _readable(kubeconfig: str | None) -> Iterator[str]:
    """Yield the path of the kubeconfig, and convert errors in the block to `KubeconfigError`."""
    path = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    try:
        yield path
    except ConfigException as error:
        reason = str(error).removeprefix("Invalid kube-config file. ")
        raise KubeconfigError(path, reason) from error
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise KubeconfigError(path, f"it is not valid YAML{where}") from error
    except SSLError as error:
        reason = f"a certificate or key in it cannot be read ({error.strerror or error})"
        raise KubeconfigError(path, reason) from error
    except OSError as error:
        named = f": {error.filename}" if error.filename else ""
        raise KubeconfigError(path, f"{error.strerror or error}{named}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # The loader does not check the types of fields.
        raise KubeconfigError(path, "it is empty, or not a kubeconfig") from error
