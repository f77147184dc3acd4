"""The generated messages are those of kubelet.proto, and the wire format is Kubernetes'."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from partita.agent.kubelet import kubelet_pb2 as api

OPERATOR = Path(__file__).parents[2] / "operator"
FOLDER = "partita/agent/kubelet"


def test_the_generated_files_are_those_of_the_proto(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{OPERATOR}", f"--python_out={tmp_path}",
         f"--pyi_out={tmp_path}", OPERATOR / FOLDER / "kubelet.proto"],
        check=True,
    )  # fmt: skip
    for name in ("kubelet_pb2.py", "kubelet_pb2.pyi"):
        made, kept = tmp_path / FOLDER / name, OPERATOR / FOLDER / name
        assert made.read_text() == kept.read_text(), "run `make protos`"


def test_the_wire_format_is_that_of_kubernetes():
    """Bytes by hand: tag = number << 3 | 2 for texts and messages, 0 for a bool."""
    register = api.RegisterRequest(
        version="v1beta1",
        endpoint="a.sock",
        resource_name="b/c",
        options=api.DevicePluginOptions(pre_start_required=True),
    )
    assert (
        register.SerializeToString() == b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03b/c\x22\x02\x08\x01"
    )
    devices = api.ListAndWatchResponse(devices=[api.Device(ID="x", health="Healthy")])
    assert devices.SerializeToString() == b"\x0a\x0c\x0a\x01x\x12\x07Healthy"
    container = api.ContainerAllocateResponse(
        mounts=[api.Mount(container_path="/a", host_path="/b", read_only=True)],
        cdi_devices=[api.CDIDevice(name="v/c=d")],
    )
    assert (
        container.SerializeToString()
        == b"\x12\x0a\x0a\x02/a\x12\x02/b\x18\x01\x2a\x07\x0a\x05v/c=d"
    )
    asked = api.AllocateRequest.FromString(b"\x0a\x06\x0a\x01x\x0a\x01y")
    assert list(asked.container_requests[0].devices_ids) == ["x", "y"]
    told = api.ListPodResourcesResponse.FromString(
        b"\x0a\x15\x0a\x01p\x12\x01n\x1a\x0d\x0a\x01c\x12\x08\x0a\x03r/s\x12\x01d"
    )
    (pod,) = told.pod_resources
    assert (pod.name, pod.namespace, pod.containers[0].name) == ("p", "n", "c")
    assert list(pod.containers[0].devices[0].device_ids) == ["d"]
