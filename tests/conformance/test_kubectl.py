"""The real kubectl: its output on either server is the same."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from conformance.objects import widget, widgets
from support.api import Api
from support.kubectl import Kubectl

MANIFEST = """\
apiVersion: conformance.partita.dev/v1
kind: Widget
metadata:
  name: w
spec:
  size: small
  replicas: 2
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
data:
  a: "1"
"""


async def applied(kubectl: Kubectl, namespace: str, manifest: str = MANIFEST) -> str:
    return (await kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)).ok()


@pytest.mark.smoke
async def test_apply_creates_then_changes_then_leaves_alone(kubectl: Kubectl, namespace: str):
    lines = (await applied(kubectl, namespace)).splitlines()
    assert lines == ["widget.conformance.partita.dev/w created", "configmap/c created"]
    changed = MANIFEST.replace("replicas: 2", "replicas: 3")
    lines = (await applied(kubectl, namespace, changed)).splitlines()
    assert lines == ["widget.conformance.partita.dev/w configured", "configmap/c unchanged"]


async def test_get_understands_names_categories_and_formats(kubectl: Kubectl, namespace: str):
    await applied(kubectl, namespace)

    async def get(*arguments: str) -> str:
        return (await kubectl("get", "-n", namespace, *arguments)).ok()

    assert (await get("widget/w", "-o", "name")).strip() == "widget.conformance.partita.dev/w"
    assert "w" in await get("conformance", "-o", "name")
    assert await get("widget", "w", "-o", "jsonpath={.spec.size}") == "small"
    assert json.loads(await get("widgets", "-o", "json"))["items"][0]["kind"] == "Widget"
    assert "size: small" in await get("widgets.v1.conformance.partita.dev", "w", "-o", "yaml")
    assert await get("widgets", "-l", "a=b", "-o", "name") == ""
    selected = await get("widgets", "--field-selector", "spec.size=small", "-o", "name")
    assert selected.strip().endswith("/w")


async def test_explain_reads_the_descriptions(kubectl: Kubectl):
    out = (await kubectl("explain", "widget.spec")).ok()
    assert "KIND:       Widget" in out
    assert "What is wanted of the widget." in out
    assert re.search(r"size\s+<string> -required-\n\s+enum: small, large", out)
    out = (await kubectl("explain", "widget.spec.replicas")).ok()
    assert "FIELD: replicas <integer>" in out


async def test_wait_for_a_condition_a_value_and_an_end(kubectl: Kubectl, api: Api, namespace: str):
    await applied(kubectl, namespace)
    wait = ("wait", "widget/w", "-n", namespace, "--timeout=30s")
    path = f"{widgets(namespace, 'w')}/status"
    async with asyncio.TaskGroup() as group:
        condition = group.create_task(kubectl(*wait, "--for=condition=Ready"))
        value = group.create_task(kubectl(*wait, "--for=jsonpath={.status.phase}=On"))
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "On"}
        (await api.patch(path, {"status": ready})).ok()
    assert "condition met" in condition.result().ok()
    assert "condition met" in value.result().ok()
    async with asyncio.TaskGroup() as group:
        end = group.create_task(kubectl(*wait, "--for=delete"))
        (await api.delete(widgets(namespace, "w"))).ok()
    end.result().ok()


def a_list(kind: str = "List", version: str = "v1", **spec: object) -> str:
    items = [widget(name, **spec) for name in "ab"]
    return json.dumps({"apiVersion": version, "kind": kind, "items": items})


LISTS = [("List", "v1"), ("WidgetList", "conformance.partita.dev/v1")]
MADE = ["widget.conformance.partita.dev/a created", "widget.conformance.partita.dev/b created"]


@pytest.mark.parametrize(("kind", "version"), LISTS)
async def test_a_list_is_applied(kubectl: Kubectl, namespace: str, kind: str, version: str):
    apply = ("apply", "-n", namespace, "-f", "-")
    assert (await kubectl(*apply, stdin=a_list(kind, version))).ok().splitlines() == MADE
    changed = (await kubectl(*apply, stdin=a_list(kind, version, replicas=5))).ok()
    assert changed.splitlines() == [one.replace("created", "configured") for one in MADE]
    unchanged = (await kubectl(*apply, stdin=a_list(kind, version, replicas=5))).ok()
    assert unchanged.splitlines() == [one.replace("created", "unchanged") for one in MADE]
