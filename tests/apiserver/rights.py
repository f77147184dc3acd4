"""Rights as they are granted, beside rights as they are used.

The real API server of the tests knows the service accounts of `manifests/` and grants them just
what stands there. It notes each of their requests and which role allowed it; what was refused, or
never asked for, is wrong with the role.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from typing_extensions import override

__all__ = [
    "BASE",
    "EVERYBODY",
    "Right",
    "Used",
    "granted",
    "install_rights",
    "noted",
    "problems",
    "render",
]

CLAIM_STATUS = "resource.k8s.io/resourceclaims/status"
CLAIM_BINDING = "resource.k8s.io/resourceclaims/binding"
"""Who changes `status.allocation` needs this right too. The API server checks it by itself while it
handles the write of the status, so it is in no audit event
(`AuthorizedForBinding` in k8s.io/kubernetes v1.36.3, pkg/registry/resource/utils.go)."""

Body = dict[str, Any]

BASE = Path(__file__).parents[2] / "manifests" / "base"

KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

EVERYBODY = "system:authenticated"
"""The group of whoever has an account, service accounts too."""


class Right(NamedTuple):
    """One thing that a role allows."""

    role: str
    verb: str
    resource: str
    """With group and subresource, such as `partita.dev/gpuservers/status`."""

    @override
    def __str__(self) -> str:
        """Name it as a person looks for it."""
        return f"{self.verb} {self.resource} ({self.role})"


def install_rights(kubectl: Path, kubeconfig: Path) -> None:
    """Grant what `manifests/` grants, in namespaces that are otherwise open."""
    rendered = [d for d in render(kubectl) if d["kind"] in KINDS]
    names = sorted({d["metadata"]["namespace"] for d in rendered if "namespace" in d["metadata"]})
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
    ]
    _run(
        [str(kubectl), f"--kubeconfig={kubeconfig}", "apply", "--filename=-"],
        yaml.safe_dump_all([*namespaces, *rendered]),
    )


def render(kubectl: Path, folder: Path = BASE) -> list[Body]:
    """Return the objects of a kustomization."""
    text = _run([str(kubectl), "kustomize", str(folder)])
    return list(yaml.safe_load_all(text))


def _run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def granted(documents: Iterable[Body], account: str) -> set[Right]:
    """Return what the roles bound to a service account, or to a group, allow."""
    roles, bound = {}, set[tuple[str, str]]()
    for document in documents:
        if document["kind"] in {"ClusterRole", "Role"}:
            roles[document["kind"], document["metadata"]["name"]] = document["rules"]
        elif document["kind"] in {"ClusterRoleBinding", "RoleBinding"} and any(
            subject["name"] == account for subject in document["subjects"]
        ):
            bound.add((document["roleRef"]["kind"], document["roleRef"]["name"]))
    return {
        Right(role, verb, f"{group}/{resource}".lstrip("/"))
        for kind, role in bound
        for rule in roles[kind, role]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def noted(audit_log: Path) -> Iterator[tuple[str, Body]]:
    """Read the audit events, each with the name of its service account."""
    with audit_log.open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                return  # is being written
            event = json.loads(line)
            yield event["user"]["username"].rpartition(":")[2], event


@dataclass(slots=True)
class Used:
    """What one account has asked for."""

    rights: set[Right] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def note(self, event: Body) -> None:
        """Add what an audit event says."""
        about = event.get("objectRef")
        notes = event.get("annotations", {})
        if notes.get("authorization.k8s.io/decision") != "allow":
            self.refused.add(f"{event['verb']} {event['requestURI'].partition('?')[0]}")
        elif about is not None:
            parts = (about.get("apiGroup"), about["resource"], about.get("subresource"))
            role = re.search(r'of (?:Cluster)?Role "([^"]+)"', notes["authorization.k8s.io/reason"])
            name = role[1] if role else "no role"
            resource = "/".join(p for p in parts if p)
            self.rights.add(Right(name, event["verb"], resource))
            if resource == CLAIM_STATUS:
                self.rights.add(Right(name, event["verb"], CLAIM_BINDING))

    def add(self, other: Used) -> None:
        """Add what it asked another API server for."""
        self.rights |= other.rights
        self.refused |= other.refused


def problems(rights: set[Right], of_everybody: set[Right], asked: Used) -> list[str]:
    """Say which rights of an account are missing, and which nobody used.

    Where the account and everybody have the same right, the API server notes the role of either,
    whichever it comes upon first.
    """
    by_either = {(right.verb, right.resource) for right in asked.rights & of_everybody}
    return [
        *(f"missing: {request}" for request in sorted(asked.refused)),
        *(
            f"not used: {right}"
            for right in sorted(rights - asked.rights)
            if (right.verb, right.resource) not in by_either
        ),
    ]
