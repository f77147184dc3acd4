"""The operator's settings: what the environment and the command line say."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["OperatorSettings"]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How one operator process runs."""

    namespace: str = "partita-system"
    """Namespace of the operator, its Lease and the server Pods."""
    identity: str = ""
    """Who we are in the Lease; a container that restarts in the same Pod keeps its name."""
    lease_duration: float = 15.0
    """Seconds after which another operator may take over from one that is silent."""
    image: str = "partita:latest"
    """Image of the server Pods."""
    service_account: str = "partita-agent"
    """Service account of the server Pods."""
    health_port: int = 0
    """Port of /healthz and /readyz on all interfaces; 0 serves none."""
    record: Path | None = None
    """Folder in which decisions are recorded for `partita replay`; None records none."""
    record_limit: int = 256 << 20
    """Bytes of all recordings in that folder."""
