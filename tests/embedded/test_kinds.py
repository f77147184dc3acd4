"""Rules of Kubernetes' own kinds that the conformance suite does not compare."""

from typing import Any

import pytest

from partita.validation.kinds import builtin_kinds


def completed(kind: str, meta: dict[str, Any] | None = None, **rest: Any) -> tuple[Any, list[str]]:
    obj = {"metadata": {"name": "a"} | (meta or {}), **rest}
    errors = builtin_kinds()["v1", kind].complete(obj)
    return obj, [error.field for error in errors]


def test_quantities_and_their_numbers_are_text_in_a_pod():
    container = {"name": "a", "image": "a", "resources": {"limits": {"cpu": 1, "x.org/y": 2}}}
    pod, fields = completed("Pod", spec={"containers": [container]})
    assert fields == []
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "x.org/y": "2"}


def test_a_secret_keeps_text_as_data():
    secret, fields = completed("Secret", stringData={"k": "v"})
    assert fields == []
    assert (secret["data"], secret["type"]) == ({"k": "dg=="}, "Opaque")
    assert "stringData" not in secret


@pytest.mark.parametrize(
    ("kind", "meta", "fields"),
    [
        ("ConfigMap", {"labels": {"Bad..org/x": "v", "ok": "v" * 64}}, ["metadata.labels"] * 2),
        ("ConfigMap", {"annotations": {"big": "x" * 256 * 1024}}, ["metadata.annotations"]),
        (
            "ConfigMap",
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                    for n in "ab"
                ]
            },
            ["metadata.ownerReferences"],
        ),
        ("ConfigMap", {"name": "x" * 254}, ["metadata.name"]),
        ("Namespace", {"name": "x" * 64}, ["metadata.name", "metadata.labels"]),
    ],
)
def test_metadata_has_limits(kind: str, meta: dict[str, Any], fields: list[str]):
    assert completed(kind, meta)[1] == fields
