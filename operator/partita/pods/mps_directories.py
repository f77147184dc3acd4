"""The directories of MPS's pipes and logs: the agent creates them, the clients use them.

The pipe directory must be the same for the daemon and its clients (`CUDA_MPS_PIPE_DIRECTORY` in
https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html), so the agent's
device plugin mounts it under the same path in the job's containers.
"""

from typing import Final

__all__ = ["RUN_DIRECTORY", "log_directory", "pipe_directory"]

RUN_DIRECTORY: Final = "/run/partita"
"""On the node, and at the same path in each container that mounts a part of it."""


def pipe_directory(uuid: str) -> str:
    """Directory of the control daemon's pipes and sockets."""
    return f"{RUN_DIRECTORY}/{uuid}/pipe"


def log_directory(uuid: str) -> str:
    """Directory of the control daemon's and the server's logs."""
    return f"{RUN_DIRECTORY}/{uuid}/log"
