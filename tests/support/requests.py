"""What a request to the Kubernetes API is about, read from its method and path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["Request", "Target"]

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})

NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
"""After ``namespaces/NAME`` these are no resources inside the namespace."""


@dataclass(frozen=True)
class Target:
    """The object, collection or subresource that a path names; empty where it names none."""

    group: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, path: str) -> Target:
        """Read a path below ``/api/v1`` or ``/apis/GROUP/VERSION``."""
        root, *parts = path.strip("/").split("/")
        if root == "api":
            group, parts = "", parts[1:]
        elif root == "apis" and len(parts) > 1:
            group, parts = parts[0], parts[2:]
        else:
            return cls()
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in NAMESPACE_SUBRESOURCES:
            namespace, parts = parts[1], parts[2:]
        resource, name, subresource = [*parts, "", "", ""][:3]
        return cls(group, namespace, resource, name, subresource)


@dataclass(frozen=True)
class Request:
    """One request as the client sent it.

    Attributes
    ----------
    number
        Its place among all requests, from 1.
    agent
        The client's ``User-Agent``.
    """

    number: int
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    agent: str = ""

    @cached_property
    def target(self) -> Target:
        """What its path names."""
        return Target.of(self.path)

    @property
    def resource(self) -> str:
        """The plural, such as ``gpuservers``."""
        return self.target.resource

    @property
    def subresource(self) -> str:
        """Such as ``status``, or empty."""
        return self.target.subresource

    @property
    def kind(self) -> str:
        """Method and resource, such as ``PATCH gpuservers/status``: by this writes are counted."""
        return f"{self.method} {self.resource}" + (f"/{self.subresource}" * bool(self.subresource))

    @property
    def is_write(self) -> bool:
        """Whether it may change an object: dry runs and reviews of access do not."""
        return (
            self.method in WRITES
            and "dryRun" not in self.query
            and not self.target.group.endswith(("authorization.k8s.io", "authentication.k8s.io"))
        )

    @property
    def is_watch(self) -> bool:
        """Whether its answer goes on until one side ends it."""
        return self.method == "GET" and self.query.get("watch") in {"1", "true", "True"}

    def json(self) -> Any:
        """Return its body, which must be JSON."""
        return json.loads(self.body)
