"""What a support archive shows of an object."""

from __future__ import annotations

from partita.cli.cluster.redaction import redacted


def test_what_may_be_a_secret_is_left_out_wherever_a_container_stands() -> None:
    container = {
        "name": "main",
        "image": "trainer:1",
        "command": ["train", "--token=S3CRET"],
        "args": ["S3CRET"],
        "env": [
            {"name": "TOKEN", "value": "S3CRET"},
            {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
            {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/run/partita"},
        ],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "X", "value": "S3CRET"}]}},
        "lifecycle": {"preStop": {"exec": {"command": ["S3CRET"]}}},
    }
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": "S3CRET",
        "partita.dev/retry": "1",
    }
    pod = {"spec": {"containers": [container], "initContainers": [container]}}
    seen = redacted(
        {
            "metadata": {"managedFields": [{"manager": "S3CRET"}], "annotations": annotations},
            "spec": {"gpuMemory": "6Gi", "template": pod},
        }
    )
    assert "S3CRET" not in str(seen)
    assert seen["metadata"] == {"annotations": {"partita.dev/retry": "1"}}
    assert seen["spec"]["gpuMemory"] == "6Gi"
    (main,) = seen["spec"]["template"]["spec"]["containers"]
    assert main["env"][1]["valueFrom"]["secretKeyRef"]["name"] == "keys"
    assert main["env"][2]["value"] == "/run/partita"


def test_what_is_no_object_of_the_api_is_passed_on() -> None:
    assert redacted({"containers": ["odd"], "env": 3}) == {"containers": ["odd"], "env": 3}
    assert redacted([{"containers": [{"env": ["odd"]}]}]) == [{"containers": [{"env": ["odd"]}]}]
