"""The sockets of the agents of one node: kubelet and the agents find each other by their names."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita.constants import DRIVER, LONGEST_KUBELET_DIRECTORY

__all__ = ["DriverSockets"]

_LONGEST: Final = 64 - LONGEST_KUBELET_DIRECTORY
"""Characters of a GPUServer's name in the name of a socket: the path of a socket has at most 107
(unix(7), `sun_path`), and 43 of the longest path are neither kubelet's directory nor this name."""


@dataclass(frozen=True, slots=True)
class DriverSockets:
    """The sockets of the DRA driver on this node.

    Parameters
    ----------
    kubelet
        kubelet's directory. The directories for plugins are below it
        (`DefaultKubeletPluginsDirName` and `DefaultKubeletPluginsRegistrationDirName` in
        k8s.io/kubernetes, pkg/kubelet/config/defaults.go).
    """

    kubelet: Path

    def registration(self, server: str) -> Path:
        """Return the socket by which kubelet finds the agent of a GPUServer."""
        return self.kubelet / "plugins_registry" / f"{DRIVER}-{_short(server)}-reg.sock"

    def service(self, server: str) -> Path:
        """Return the socket of the services of the agent of a GPUServer."""
        return self._services / f"{_short(server)}.sock"

    def of_agent(self, server: str) -> Path | None:
        """Return the socket of the agent of a GPUServer on this node; None if it has none.

        The name may be any text: it is only compared with the names of sockets.
        """
        name = f"{_short(server)}.sock"
        return next((path for path in self._services.glob("*.sock") if path.name == name), None)

    @property
    def _services(self) -> Path:
        return self.kubelet / "plugins" / DRIVER


def _short(server: str) -> str:
    if len(server) <= _LONGEST:
        return server
    digest = hashlib.sha256(server.encode(errors="replace")).hexdigest()[:8]
    return f"{server[: _LONGEST - len(digest) - 1]}-{digest}"
