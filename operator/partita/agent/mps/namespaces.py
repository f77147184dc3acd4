"""The server and the namespaces of an MPS control daemon with protocol 3.

Each slot has a namespace, because the limits of a namespace can be changed only while it has no
client. A namespace is *closed* while its slot belongs to no claim: its limits are so small that no
client can use the GPU. The daemon starts with closed namespaces. They must all
be in its configuration: a namespace without limits gives the whole GPU (Dynamo, below).

https://docs.nvidia.com/deploy/mps/latest/mpsv3-namespaces.html describes namespaces, and
mpsv3-configuration-file.html the configuration. "Dynamo" is "Per-GPU Compute and Memory Limits with
MPS" in https://github.com/ai-dynamo/dynamo, measured by NVIDIA with driver 615.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "CANARY",
    "CLOSED",
    "SERVER",
    "NamespaceLimits",
    "daemon_configuration",
    "namespace_directory",
    "slot_namespace",
]

SERVER: Final = "partita"
"""Name of the one server. Names consist of lowercase letters, digits and underscores."""
CANARY: Final = "canary"
"""Namespace of the client that checks whether MPS works."""


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """Limits of each client process of a namespace."""

    memory: int
    """MiB. It includes the CUDA context (Dynamo, "Verify what a client gets")."""
    threads: int
    """Percent of the GPU's threads."""


CLOSED: Final = NamespaceLimits(memory=1, threads=1)
"""The smallest limits.

An assumption (configuration-v3): the daemon of protocol 3 accepts 1 MiB and 1 %. If not, protocol
2 is used if the daemon exits, and MPS does not start otherwise."""
_CANARY_LIMITS: Final = NamespaceLimits(memory=1024, threads=10)
"""Enough for one CUDA context, which takes a few hundred MiB, and a small allocation."""


def slot_namespace(slot: int) -> str:
    """Return the name of the namespace of a slot."""
    return f"slot_{slot}"


def namespace_directory(pipes: Path, namespace: str) -> Path:
    """Return the directory with the socket of a namespace (page above, "Namespace Routing")."""
    return pipes / SERVER / namespace


def daemon_configuration(uuid: str, slots: int) -> str:
    """Return the configuration of the daemon of one GPU, as TOML.

    The daemon applies it when it starts, so a client that connects at once has its limits.

    Parameters
    ----------
    uuid
        The GPU.
    slots
        Number of slots: most claims on the GPU at the same time.
    """
    namespaces = {slot_namespace(slot): CLOSED for slot in range(slots)}
    tables = [
        # The limits of the server are those of its default namespace.
        f'[servers.{SERVER}]\nallowed_devices = "{uuid}"\nuid = 0\n{_limits(CLOSED)}',
        *(
            f"[servers.{SERVER}.namespaces.{name}]\n{_limits(limits)}"
            for name, limits in {**namespaces, CANARY: _CANARY_LIMITS}.items()
        ),
    ]
    return "\n".join(['schema_version = "1.0"\n', *tables])


def _limits(limits: NamespaceLimits) -> str:
    return (
        f'pinned_memory_limit = "{limits.memory}M"\nactive_thread_percentage = "{limits.threads}"\n'
    )
