"""The directories of MPS's pipes and logs: the agent creates them, the clients use them.

The pipe directory must be the same for the daemon and its clients (`CUDA_MPS_PIPE_DIRECTORY` in
https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html), so the device of
a claim mounts it under the same path in the containers.
"""

from typing import Final

__all__ = ["RUN_DIRECTORY", "log_directory", "pipe_directory"]

RUN_DIRECTORY: Final = "/run/partita"
"""Directory on the node. Containers mount parts of it at the same path."""


def pipe_directory(uuid: str) -> str:
    """Return the directory of the control daemon's pipes and sockets."""
    return f"{RUN_DIRECTORY}/{uuid}/pipe"


def log_directory(uuid: str) -> str:
    """Return the directory of the logs of the control daemon and the server."""
    return f"{RUN_DIRECTORY}/{uuid}/log"
