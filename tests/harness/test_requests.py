from __future__ import annotations

import pytest

from support.requests import Request, Target


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/pods", Target(resource="pods")),
        ("/api/v1/namespaces/a/pods", Target(namespace="a", resource="pods")),
        (
            "/api/v1/namespaces/a/pods/p/binding",
            Target(namespace="a", resource="pods", name="p", subresource="binding"),
        ),
        ("/api/v1/namespaces", Target(resource="namespaces")),
        ("/api/v1/namespaces/a", Target(resource="namespaces", name="a")),
        (
            "/api/v1/namespaces/a/status",
            Target(resource="namespaces", name="a", subresource="status"),
        ),
        (
            "/apis/partita.dev/v1alpha1/gpuservers/g/status",
            Target("partita.dev", resource="gpuservers", name="g", subresource="status"),
        ),
        (
            "/apis/partita.dev/v1alpha1/namespaces/a/sharedgpujobs/j",
            Target("partita.dev", "a", "sharedgpujobs", "j"),
        ),
        ("/apis", Target()),
        ("/openapi/v3", Target()),
    ],
)
def test_a_path_names_its_target(path: str, target: Target):
    assert Target.of(path) == target


def test_the_kind_of_a_write_is_its_method_and_resource():
    path = "/apis/partita.dev/v1alpha1/gpuservers/g"
    assert Request(1, "DELETE", path).kind == "DELETE gpuservers"
    assert Request(1, "PATCH", f"{path}/status").kind == "PATCH gpuservers/status"


def test_dry_runs_and_reviews_are_no_writes():
    assert Request(1, "POST", "/api/v1/namespaces/a/pods").is_write
    assert not Request(1, "GET", "/api/v1/namespaces/a/pods").is_write
    assert not Request(1, "POST", "/api/v1/namespaces/a/pods", {"dryRun": "All"}).is_write
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert not Request(1, "POST", review).is_write


def test_the_manager_is_named_or_the_client():
    assert Request(1, "PATCH", "/x", {"fieldManager": "m"}, agent="kopf/1").manager == "m"
    assert Request(1, "PATCH", "/x", agent="kopf/1.45 python").manager == "kopf"
