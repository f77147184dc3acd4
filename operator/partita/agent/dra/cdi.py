"""The CDI files of claims: what the containers of a claim get from the container runtime.

A prepared claim has a file for each of its GPUs, with one device. The runtime reads it whenever it
creates a container of the claim, so a changed file applies to the next start of a container. The
file is also the agent's record that the claim is prepared: its annotations say by whom, and with
which slot.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from partita.agent.allocations import Key
from partita.agent.errors import PrepareError, SetupError
from partita.agent.paths import remove_file, write_file
from partita.constants import GROUP

__all__ = ["CDIFolder", "ClaimDevice"]

_KIND: Final = f"{GROUP}/slice"
_PREFIX: Final = f"{GROUP}-slice-"
_VERSION: Final = "0.6.0"
"""The first version with annotations (page above, "Version History")."""
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""A UID as the API server makes it: an RFC 4122 UUID (k8s.io/apimachinery, pkg/util/uuid)."""
_OPTIONS: Final = ["rw", "nosuid", "nodev", "bind"]
_SERVER: Final = f"{GROUP}/server"
_POD: Final = f"{GROUP}/pod"
_ALLOCATION: Final = f"{GROUP}/allocation-uid"
_SLOT: Final = f"{GROUP}/slot"


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """What the containers of one claim get by its device on one GPU."""

    claim: str
    """UID of the claim."""
    server: str
    """The GPUServer whose agent has prepared it."""
    key: Key
    """Key of its allocation in the ledger."""
    slot: int | None = None
    """Slot of the GPU; None if the GPU is shared without slots."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, which replace those of the Pod."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Directory on the node by directory in the containers."""

    @property
    def name(self) -> str:
        """The device's name, which differs from all others on the node."""
        return f"{self.claim}-{self.server}"

    @property
    def pod(self) -> str:
        """UID of the Pod that uses it."""
        return self.key[1]

    @property
    def id(self) -> str:
        """The device for the container runtime."""
        return f"{_KIND}={self.name}"

    def dump(self) -> dict[str, Any]:
        """Return the content of the CDI file."""
        allocation, pod = self.key
        marks = {_SERVER: self.server, _ALLOCATION: allocation, _POD: pod}
        if self.slot is not None:
            marks[_SLOT] = str(self.slot)
        edits: dict[str, Any] = {"env": [f"{name}={v}" for name, v in self.variables.items()]}
        if self.mounts:
            edits["mounts"] = [
                {"hostPath": host, "containerPath": inside, "options": _OPTIONS}
                for inside, host in self.mounts.items()
            ]
        return {
            "cdiVersion": _VERSION,
            "kind": _KIND,
            "annotations": marks,
            "devices": [{"name": self.name, "containerEdits": edits}],
        }

    @classmethod
    def load(cls, body: Mapping[str, Any]) -> "ClaimDevice":
        """Read the content of a CDI file.

        Raises
        ------
        ValueError, KeyError, TypeError, AttributeError
            The content is not that of a file of an agent.
        """
        (device,) = body["devices"]
        marks, edits = body["annotations"], device["containerEdits"]
        claim = device["name"].removesuffix(f"-{marks[_SERVER]}")
        split = (variable.partition("=") for variable in edits["env"])
        return cls(
            claim=claim,
            server=marks[_SERVER],
            key=(marks[_ALLOCATION], marks[_POD]),
            slot=int(marks[_SLOT]) if _SLOT in marks else None,
            variables={name: value for name, _, value in split},
            mounts={m["containerPath"]: m["hostPath"] for m in edits.get("mounts", ())},
        )


class CDIFolder:
    """The CDI files of all claims on the node.

    Parameters
    ----------
    path
        The directory that the container runtime reads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, claim: str, server: str) -> ClaimDevice | None:
        """Read the device of a claim on the GPU of a GPUServer.

        None if it is not prepared, or its file is not valid.
        """
        return self._read(self._file(claim, server))

    def devices(self, claim: str = "") -> Iterator[ClaimDevice]:
        """Yield the devices of a claim, or of all prepared claims, also those of other GPUs."""
        for path in sorted(self._path.glob(f"{_PREFIX}{claim}*.json")):
            if (device := self._read(path)) is not None:
                yield device

    def _read(self, file: Path) -> ClaimDevice | None:
        try:
            device = ClaimDevice.load(json.loads(file.read_text()))
            return device if file == self._file(device.claim, device.server) else None
        except (OSError, PrepareError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, device: ClaimDevice) -> None:
        """Write the file of a claim atomically.

        Raises
        ------
        PrepareError
            The directory cannot be written.
        """
        file = self._file(device.claim, device.server)
        with _changing():
            write_file(file, json.dumps(device.dump(), indent=1) + "\n")

    def remove(self, claim: str, server: str) -> None:
        """Remove the file of a device if it exists, and what a killed agent left of one.

        Raises
        ------
        PrepareError
            The directory cannot be written.
        """
        file = self._file(claim, server)
        with _changing():
            for path in (file, *self._path.glob(f".{file.name}.*")):
                remove_file(path)

    def _file(self, claim: str, server: str) -> Path:
        """Return the file of a device; the GPUServer is that of an agent of the node.

        Raises
        ------
        PrepareError
            What is asked for is no UID of the API server, and may not become a path.
        """
        if not _UID.fullmatch(claim):
            raise PrepareError(f"{claim!r} is not a UID")
        return self._path / f"{_PREFIX}{claim}-{server}.json"


@contextmanager
def _changing() -> Iterator[None]:
    """Tell kubelet why a file cannot be changed."""
    try:
        yield
    except SetupError as error:
        raise PrepareError(str(error)) from error
