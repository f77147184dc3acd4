"""A DRA driver that offers the fake GPUs as NVIDIA's offers true ones; runs on the node.

It stands for the kubelet plugin of https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu: each
prepared claim has a CDI file of its own, whose device `k8s.gpu.nvidia.com/claim=<UID>-gpu-<minor>`
brings the GPU's device file and the driver's files, and sets ``NVIDIA_VISIBLE_DEVICES`` to `void`
(there in cmd/gpu-kubelet-plugin/cdi.go). `device_class` and `resource_slice` are what the driver's
chart installs and what its plugin publishes; a test creates them.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from cluster.nvidia_runtime import DEVICE, FILES, STATE
from partita.agent.kubelet import kubelet_pb2 as api

__all__ = ["CLASS", "REGISTERED", "REGISTRATION", "device_class", "main", "resource_slice"]

CLASS = DRIVER = "gpu.nvidia.com"
REGISTRATION = Path("/var/lib/kubelet/plugins_registry") / f"{DRIVER}.sock"
SERVICE = Path("/var/lib/kubelet/plugins") / DRIVER / "dra.sock"
REGISTERED = SERVICE.with_name("registered")
"""Is there once kubelet has registered the driver."""
CDI = Path("/var/run/cdi")
KIND = f"k8s.{DRIVER}/claim"

Json = dict[str, Any]


def device_class() -> Json:
    """Return the class of whole GPUs (there deployments/.../templates/deviceclass-gpu.yaml)."""
    of_a_gpu = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    return {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": of_a_gpu}}]}}


def resource_slice(node: str, gpus: Mapping[int, Mapping[str, str]]) -> Json:
    """Return the slice of a node's GPUs, by minor number (there `GpuInfo` in deviceinfo.go).

    Parameters
    ----------
    gpus
        `uuid`, `name` and `memory` (bytes) of each.
    """
    devices = [
        {
            "name": f"gpu-{minor}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": figures["uuid"]},
                "productName": {"string": figures["name"]},
            },
            "capacity": {"memory": {"value": figures["memory"]}},
        }
        for minor, figures in gpus.items()
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


def cdi_spec(device: str, minor: str, driver: Path, state: Path) -> Json:
    """Return the content of a claim's CDI file."""
    mounts = [(state, STATE, "rw")]
    for files in FILES.values():
        mounts += [(driver / name, f"{folder}/{name}", "ro") for name, folder in files.items()]
    common = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", f"FAKE_GPU_DIR={STATE}"],
        "mounts": [
            {"hostPath": str(path), "containerPath": inside, "options": ["rbind", access]}
            for path, inside, access in mounts
        ],
        "deviceNodes": [device_file("ctl")],
    }
    own = {"name": device, "containerEdits": {"deviceNodes": [device_file(minor)]}}
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": [own], "containerEdits": common}


def device_file(name: str) -> Json:
    """Return a device file of the fake driver, which is another `/dev/null`."""
    return {"path": f"{DEVICE}{name}", "type": "c", "major": 1, "minor": 3}


def spec_file(uid: str) -> Path:
    return CDI / f"k8s.{DRIVER}-claim_{uid}.json"


def allocated_device(claim: api.Claim) -> Json:
    """Return what is allocated for a claim; kubelet sends no more than its name."""
    config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    cluster = config["clusters"][0]["cluster"]
    path = f"apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
    request = urllib.request.Request(
        f"{cluster['server']}/{path}",
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
    )
    trusted = ssl.create_default_context(cafile=cluster["certificate-authority"])
    with urllib.request.urlopen(request, context=trusted, timeout=10) as answer:
        (result,) = json.load(answer)["status"]["allocation"]["devices"]["results"]
    return dict(result)


def prepare(request: api.ClaimsRequest, context: grpc.ServicerContext) -> api.PrepareResponse:
    """Write a CDI file for each claim."""
    driver, state = (Path(os.environ[name]) for name in ("FAKE_GPU_DRIVER", "FAKE_GPU_DIR"))
    CDI.mkdir(parents=True, exist_ok=True)
    response = api.PrepareResponse()
    for claim in request.claims:
        found = allocated_device(claim)
        device = f"{claim.uid}-{found['device']}"
        minor = found["device"].removeprefix("gpu-")
        spec_file(claim.uid).write_text(json.dumps(cdi_spec(device, minor, driver, state)))
        prepared = api.PreparedDevice(
            request_names=[found["request"]],
            pool_name=found["pool"],
            device_name=found["device"],
            cdi_device_ids=[f"{KIND}={device}"],
        )
        response.claims[claim.uid].devices.append(prepared)
    return response


def unprepare(request: api.ClaimsRequest, context: grpc.ServicerContext) -> api.UnprepareResponse:
    """Remove the CDI files of claims."""
    response = api.UnprepareResponse()
    for claim in request.claims:
        spec_file(claim.uid).unlink(missing_ok=True)
        response.claims[claim.uid].SetInParent()
    return response


def information(request: api.Empty, context: grpc.ServicerContext) -> api.PluginInfo:
    return api.PluginInfo(
        type="DRAPlugin", name=DRIVER, endpoint=str(SERVICE), supported_versions=["v1.DRAPlugin"]
    )


def notice_registration(
    request: api.RegistrationStatus, context: grpc.ServicerContext
) -> api.Empty:
    """Note that kubelet has registered the driver."""
    if request.plugin_registered:
        REGISTERED.touch()
    return api.Empty()


def serve(socket: Path, service: str, methods: Mapping[str, tuple[Callable[..., Any], Any]]) -> Any:
    """Serve methods, by name with the type of their request, on a new socket."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            method, request.FromString, lambda response: response.SerializeToString()
        )
        for name, (method, request) in methods.items()
    }
    handler = grpc.method_handlers_generic_handler(service, handlers)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def main() -> None:
    """Serve until killed; kubelet finds the socket of the registration by itself."""
    claims = {
        "NodePrepareResources": (prepare, api.ClaimsRequest),
        "NodeUnprepareResources": (unprepare, api.ClaimsRequest),
    }
    registration = {
        "GetInfo": (information, api.Empty),
        "NotifyRegistrationStatus": (notice_registration, api.RegistrationStatus),
    }
    servers = [
        serve(SERVICE, "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", claims),
        serve(REGISTRATION, "pluginregistration.Registration", registration),
    ]
    sys.stderr.write(f"{len(servers)} services\n")
    threading.Event().wait()


if __name__ == "__main__":
    main()
