"""The judge of rights: what it lets pass, and what not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from apiserver.rights import BASE, Right, Used, granted, noted, problems

RIGHTS = {
    Right("worker", "list", "pods"),
    Right("worker", "patch", "partita.dev/gpuservers/status"),
    Right("worker-lease", "get", "coordination.k8s.io/leases"),
}
OF_EVERYBODY = {Right("reader", "list", "pods"), Right("reader", "get", "pods")}


def event(verb: str, resource: str, role: str | None = "worker", **more: str) -> dict:
    """What the API server notes of a request."""
    decision = (
        {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
        if role is None
        else {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": f'RBAC: allowed by ClusterRoleBinding "x" of '
            f'ClusterRole "{role}" to ServiceAccount "worker/system"',
        }
    )
    return {
        "verb": verb,
        "requestURI": f"/{resource}?limit=500",
        "user": {"username": "system:serviceaccount:system:worker"},
        "objectRef": {"resource": resource, **more},
        "annotations": decision,
    }


def used(events: list[dict]) -> Used:
    """What the API server was asked for, as its audit events have it."""
    found = Used()
    for one in events:
        found.note(one)
    return found


ALL = [
    event("list", "pods"),
    event("patch", "gpuservers", apiGroup="partita.dev", subresource="status"),
    event("get", "leases", "worker-lease", apiGroup="coordination.k8s.io"),
]


def test_all_used_and_none_refused_is_well() -> None:
    assert problems(RIGHTS, OF_EVERYBODY, used(ALL)) == []


def test_one_that_nobody_used_is_named() -> None:
    assert problems(RIGHTS, OF_EVERYBODY, used(ALL[1:])) == ["not used: list pods (worker)"]


def test_who_writes_the_status_of_a_claim_uses_the_right_to_bind_it() -> None:
    group = "resource.k8s.io"
    rights = {
        Right("worker", "patch", f"{group}/resourceclaims/status"),
        Right("worker", "patch", f"{group}/resourceclaims/binding"),
    }
    status = event("patch", "resourceclaims", apiGroup=group, subresource="status")
    plain = event("patch", "resourceclaims", apiGroup=group)
    assert problems(rights, OF_EVERYBODY, used([status])) == []
    assert problems(rights, OF_EVERYBODY, used([plain])) == [
        "not used: patch resource.k8s.io/resourceclaims/binding (worker)",
        "not used: patch resource.k8s.io/resourceclaims/status (worker)",
    ]


def test_what_another_role_allowed_does_not_count() -> None:
    events = [*ALL[1:], event("list", "pods", "system:basic")]
    assert problems(RIGHTS, OF_EVERYBODY, used(events)) == ["not used: list pods (worker)"]


def test_what_the_same_right_of_everybody_allowed_counts() -> None:
    events = [*ALL[1:], event("list", "pods", "reader")]
    assert problems(RIGHTS, OF_EVERYBODY, used(events)) == []
    events = [*ALL[1:], event("get", "pods", "reader")]
    assert problems(RIGHTS, OF_EVERYBODY, used(events)) == ["not used: list pods (worker)"]


def test_one_that_is_missing_is_named_once() -> None:
    refused = event("create", "secrets", None)
    assert problems(RIGHTS, OF_EVERYBODY, used([*ALL, refused, refused])) == [
        "missing: create /secrets"
    ]


def test_what_two_api_servers_were_asked_for_counts_together() -> None:
    first, second = used(ALL[:1]), used([*ALL[1:], event("create", "secrets", None)])
    assert problems(RIGHTS, OF_EVERYBODY, second) == [
        "missing: create /secrets",
        "not used: list pods (worker)",
    ]
    first.add(second)
    assert problems(RIGHTS, OF_EVERYBODY, first) == ["missing: create /secrets"]


def test_the_log_is_read_up_to_what_is_being_written(tmp_path: Path) -> None:
    other = event("list", "pods") | {"user": {"username": "system:serviceaccount:system:other"}}
    log = tmp_path / "audit.log"
    log.write_text("\n".join(json.dumps(e) for e in [ALL[0], other, ALL[1], ALL[2]]))
    assert list(noted(log)) == [("worker", ALL[0]), ("other", other), ("worker", ALL[1])]


@pytest.mark.parametrize("account", ["partita-operator", "partita-agent"])
def test_the_manifests_grant_nothing_wholesale(account: str) -> None:
    text = (BASE / f"{account.removeprefix('partita-')}-rights.yaml").read_text()
    rights = granted(list(yaml.safe_load_all(text)), account)
    assert len(rights) > 5
    for right in rights:
        assert "*" not in right.verb + right.resource, right
        assert "secrets" not in right.resource, right
        assert right.verb not in {"impersonate", "bind", "escalate"}, right


def test_only_what_is_bound_to_the_account_is_granted() -> None:
    text = (BASE / "operator-rights.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    assert granted(documents, "partita-agent") == set()
    roles = {right.role for right in granted(documents, "partita-operator")}
    assert roles == {
        "partita-operator",
        "partita-operator-budgets",
        "partita-operator-lease",
        "partita-operator-usage",
    }
