"""Who may look at the console, as the how-to page says it, by the roles of `manifests/`."""

from __future__ import annotations

import re
import shlex

import pytest

from manifests.rendering import ROOT, documents, kustomize
from support.api import Api
from support.clusters import ApiServer
from support.kubectl import Kubectl
from support.polling import until

PAGE = ROOT / "docs" / "how-to" / "open-the-console.md"
NAMESPACE = "team-vision"
VIEWER = f"--as=system:serviceaccount:{NAMESPACE}:viewer"


async def may(kubectl: Kubectl, verb: str, resource: str, *where: str) -> bool:
    """Ask the API server whether the viewer may do something."""
    return (await kubectl("auth", "can-i", verb, resource, *where, VIEWER)).out.strip() == "yes"


async def test_the_pages_commands_let_a_viewer_see_just_that(
    kubectl: Kubectl, api: Api, installed: str
) -> None:
    meta = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await api.post("/api/v1/namespaces", meta)
    lines = re.findall(r"^kubectl (create .*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 3
    said = [(await kubectl(*shlex.split(line))).ok() for line in lines]
    assert said[-1].count(".") == 2, "this is no token"
    assert await may(kubectl, "list", "gpupartitions")
    assert await may(kubectl, "list", "sharedgpujobs", f"--namespace={NAMESPACE}")
    lease = ("leases/partita-operator", "--namespace=partita-system")
    assert await may(kubectl, "get", *lease)
    for verb, resource, *where in (
        ("update", *lease),
        ("get", "leases/another", "--namespace=partita-system"),
        ("list", "leases", "--namespace=partita-system"),
        ("list", "sharedgpujobs", "--namespace=default"),
        ("list", "sharedgpujobs", "--all-namespaces"),
        ("create", "sharedgpujobs", f"--namespace={NAMESPACE}"),
        ("update", "gpupartitions"),
        ("list", "gpuservers"),
    ):
        assert not await may(kubectl, verb, resource, *where), (verb, resource, *where)


@pytest.mark.parametrize(
    ("role", "to"),
    [("partita-partition-viewer", set()), ("partita-view-jobs", {"view"}),
     ("partita-edit-jobs", {"edit", "admin"})],
)  # fmt: skip
def test_users_roles_grant_what_their_names_say(
    role: str, to: set[str], api_server: ApiServer
) -> None:
    found = documents(kustomize("base"))["ClusterRole", role]
    verbs = {verb for rule in found["rules"] for verb in rule["verbs"]}
    reads = {"get", "list", "watch"}
    assert verbs.isdisjoint(reads) if "edit" in to else verbs == reads
    # Partitions are the cluster's, so seeing them is not part of a namespace's `view`.
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    aggregated = {k.removeprefix(prefix) for k in found["metadata"]["labels"] if prefix in k}
    assert aggregated == to


async def test_usage_is_read_by_those_to_whom_it_was_granted(
    kubectl: Kubectl, installed: str
) -> None:
    page = ROOT / "docs" / "how-to" / "account-for-usage.md"
    (line,) = re.findall(r"^kubectl (create rolebinding .*)$", page.read_text(), re.MULTILINE)
    as_member = ("--as=jane", "--as-group=finance", "--as-group=system:authenticated")

    async def may(verb: str, *where: str) -> bool:
        asked = await kubectl("auth", "can-i", verb, "configmaps", *where, *as_member)
        return asked.out.strip() == "yes"

    there = "--namespace=partita-system"
    assert not await may("list", there)
    (await kubectl(*shlex.split(line))).ok()
    await until(lambda: may("list", there))
    assert not await may("update", there)
    assert not await may("list", "--namespace=default")
