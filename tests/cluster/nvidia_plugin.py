"""A device plugin that offers the fake GPUs as NVIDIA's offers true ones; runs on the node.

It lists each GPU under its UUID and, asked for one, answers with ``NVIDIA_VISIBLE_DEVICES``: the
default strategy ``envvar`` of https://github.com/NVIDIA/k8s-device-plugin, "Configuration option
details". What that variable brings is the runtime's affair, see `cluster.nvidia_runtime`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import grpc

__all__ = ["main"]

DIRECTORY = Path("/var/lib/kubelet/device-plugins")
ENDPOINT = "fake-nvidia.sock"
RESOURCE = "nvidia.com/gpu"
POLL_SECONDS = 0.2


@cache
def messages() -> Any:
    """Return the messages of the device plugin API; Python finds scripts' files beside them."""
    return grpc.protos("device_plugin.proto")  # type: ignore[no-untyped-call]


def uuids() -> list[str]:
    """Return the UUIDs of the GPUs that there are now."""
    files = sorted(Path(os.environ["FAKE_GPU_DIR"]).glob("gpu-?"))
    figures = [dict(line.split(" ", 1) for line in f.read_text().splitlines()) for f in files]
    return [figure["uuid"] for figure in figures]


def list_and_watch(request: Any, context: grpc.ServicerContext) -> Iterator[object]:
    """Tell kubelet of the GPUs, and again whenever there are others."""
    api, told = messages(), None
    while context.is_active():
        if (now := uuids()) != told:
            told = now
            devices = [api.Device(ID=uuid, health="Healthy") for uuid in now]
            yield api.ListAndWatchResponse(devices=devices)
        time.sleep(POLL_SECONDS)


def allocate(request: Any, context: grpc.ServicerContext) -> object:
    """Answer for each container with the GPUs that kubelet chose for it."""
    api = messages()
    return api.AllocateResponse(
        container_responses=[
            api.ContainerAllocateResponse(
                envs={"NVIDIA_VISIBLE_DEVICES": ",".join(container.devices_ids)}
            )
            for container in request.container_requests
        ]
    )


def serve() -> grpc.Server:
    """Serve on a new socket in kubelet's folder."""
    (DIRECTORY / ENDPOINT).unlink(missing_ok=True)
    api, unary = messages(), grpc.unary_unary_rpc_method_handler
    methods = {
        "GetDevicePluginOptions": unary(
            lambda _request, _context: api.DevicePluginOptions(),
            api.Empty.FromString,
            api.DevicePluginOptions.SerializeToString,
        ),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            list_and_watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": unary(
            allocate, api.AllocateRequest.FromString, api.AllocateResponse.SerializeToString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{DIRECTORY / ENDPOINT}")
    server.start()
    return server


def register() -> None:
    """Tell kubelet where we serve."""
    api = messages()
    with grpc.insecure_channel(f"unix://{DIRECTORY / 'kubelet.sock'}") as channel:
        channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )(
            api.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE),
            timeout=90,
        )


def main() -> None:
    """Serve, and register with each kubelet that starts: it removes all plugins' sockets."""
    while True:
        server = serve()
        registered = False
        while (DIRECTORY / ENDPOINT).exists():
            if not registered and (DIRECTORY / "kubelet.sock").exists():
                try:
                    register()
                except grpc.RpcError as error:
                    sys.stderr.write(f"not registered yet: {error}\n")
                else:
                    registered = True
            time.sleep(POLL_SECONDS)
        server.stop(None)


if __name__ == "__main__":
    main()
