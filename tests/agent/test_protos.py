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
    info = api.PluginInfo(type="a", name="b", endpoint="c", supported_versions=["d"])
    assert info.SerializeToString() == b"\x0a\x01a\x12\x01b\x1a\x01c\x22\x01d"
    asked = api.ClaimsRequest.FromString(b"\x0a\x09\x0a\x01n\x12\x01u\x1a\x01c")
    (claim,) = asked.claims
    assert (claim.namespace, claim.uid, claim.name) == ("n", "u", "c")
    device = api.PreparedDevice(
        request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["v/c=d"]
    )
    assert device.SerializeToString() == b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x05v/c=d"
    told = api.ListPodResourcesResponse.FromString(
        b"\x0a\x15\x0a\x01p\x12\x01n\x1a\x0d\x0a\x01c\x12\x08\x0a\x03r/s\x12\x01d"
    )
    (pod,) = told.pod_resources
    assert (pod.name, pod.namespace, pod.containers[0].name) == ("p", "n", "c")
    assert list(pod.containers[0].devices[0].device_ids) == ["d"]
