"""Answers reviews as an API server would, from a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.kube.client import Kind
from partita.kube.errors import UnavailableError

__all__ = ["Reviews"]

Json = dict[str, Any]


class Reviews:
    """Stands for a client of the API server, as far as it is asked about viewers.

    Parameters
    ----------
    rights
        By token: what its user may list, such as `gpupartitions` or `sharedgpujobs/team`, and what
        else it may do, such as `patch sharedgpujobs/team`.
    """

    def __init__(self, rights: Mapping[str, set[str]]) -> None:
        self.rights = dict(rights)
        self.asked: list[Json] = []
        self.fails: str = ""
        """Namespace about which nobody can answer."""

    async def create(self, kind: Kind, body: Json) -> Json:
        spec = body["spec"]
        self.asked.append(spec)
        if kind.kind == "TokenReview":
            known = spec["token"] in self.rights
            user = {"username": spec["token"], "groups": ["system:authenticated"]}
            return {"status": {"authenticated": True, "user": user} if known else {}}
        asks = spec["resourceAttributes"]
        if self.fails and asks["namespace"] == self.fails:
            raise UnavailableError("review", 503, "down")
        wanted = "/".join(filter(None, (asks["resource"], asks["namespace"])))
        wanted = wanted if asks["verb"] == "list" else f"{asks['verb']} {wanted}"
        return {"status": {"allowed": wanted in self.rights[spec["user"]]}}
