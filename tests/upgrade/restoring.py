"""A cluster as the first operator left it, brought back to life on another API server.

`first/` holds what the operator of commit e27f0ab, the first that worked from end to end, wrote on
the embedded API server while it ran two GPUs and a job in each state; and its CRDs. No release was
published before this one, so it stands for the previous release.

As a backup that is restored: the API server gives new UIDs, so those in ledger, labels and owners
are exchanged for them. Times move with the clock: the last thing noted has just happened.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from support.api import Api
from support.crds import DEFINITIONS
from support.history import GROUP_PATH

__all__ = ["definitions", "recorded", "restore"]

Body = dict[str, Any]

FIRST = Path(__file__).parent / "first"
PATHS = {
    "GPUPartition": f"{GROUP_PATH}/gpupartitions",
    "GPUServer": f"{GROUP_PATH}/gpuservers",
    "SharedGPUJob": f"{GROUP_PATH}/namespaces/{{}}/sharedgpujobs",
    "Pod": "/api/v1/namespaces/{}/pods",
}
GIVEN = ("uid", "resourceVersion", "creationTimestamp", "generation")
"""What an API server gives an object."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def definitions() -> list[Body]:
    """Return the first CRDs."""
    return [yaml.safe_load(path.read_text()) for path in sorted((FIRST / "crds").iterdir())]


def recorded() -> list[Body]:
    """Return the recorded objects, in the order in which they need each other."""
    text = (FIRST / "objects.yaml").read_text()
    newest = max(_time(found[0]) for found in TIME.finditer(text))
    passed = datetime.now(UTC) - newest
    moved = TIME.sub(lambda found: _written(found[0], passed), text)
    return [body for body in yaml.safe_load_all(moved) if body["kind"] in PATHS]


async def restore(api: Api) -> None:
    """Install the first CRDs and make the recorded objects, with their statuses."""
    for definition in definitions():
        (await api.post(DEFINITIONS, definition)).ok()
    uids: dict[str, str] = {}
    for body in recorded():
        text = json.dumps(body)
        for old, new in uids.items():
            text = text.replace(old, new)
        ours = json.loads(text)
        old = ours["metadata"]["uid"]
        path = PATHS[body["kind"]].format(ours["metadata"].get("namespace", ""))
        meta = {key: value for key, value in ours["metadata"].items() if key not in GIVEN}
        made = (await api.post(path, {**ours, "metadata": meta})).ok().body
        uids[old] = made["metadata"]["uid"]
        status = {"status": ours["status"]}
        (await api.patch(f"{path}/{meta['name']}/status", status)).ok()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _written(text: str, passed: timedelta) -> str:
    """Write a later time as precisely as it was."""
    moved = _time(text) + passed
    return moved.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ")
