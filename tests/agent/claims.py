"""Claims of a test, and a kubelet that prepares them by the plugin's real sockets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from agent.node import Body, Node
from gpu.fake import MIB
from partita.agent.dra.sockets import DriverSockets
from partita.agent.kubelet import kubelet_pb2 as api
from partita.models.slice_parameters import SliceParameters
from partita.pods.claim_allocation import claim_allocation
from partita.pods.mps_directories import RUN_DIRECTORY
from partita.pods.own_claims import own_claim_name
from support.polling import TIMEOUT, until

__all__ = [
    "PREPARE",
    "UNPREPARE",
    "Claim",
    "Driver",
    "allocate",
    "allocate_claim",
    "create_claim",
    "prepare_claim",
    "reserve",
    "running",
]

SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
PREPARE = f"{SERVICE}/NodePrepareResources"
UNPREPARE = f"{SERVICE}/NodeUnprepareResources"


class Driver:
    """The DRA driver of one node, as its kubelet asks it."""

    def __init__(self, folder: Path) -> None:
        self._sockets = DriverSockets(folder)

    async def _socket(self, server: str) -> Path:
        """Wait for the plugin of a GPUServer."""
        path = self._sockets.service(server)
        await until(path.exists)
        return path

    async def ask(self, server: str, method: str, *claims: Claim) -> dict[str, Any]:
        """Ask the plugin of a GPUServer about claims; the answers are by UID."""
        asked = [api.Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims]
        answer = api.PrepareResponse if method == PREPARE else api.UnprepareResponse
        path, request = await self._socket(server), api.ClaimsRequest(claims=asked)
        async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
            call = channel.unary_unary(
                method,
                request_serializer=api.ClaimsRequest.SerializeToString,
                response_deserializer=answer.FromString,
            )
            return dict((await call(request, timeout=TIMEOUT)).claims)

    async def prepare(self, server: str, claim: Claim) -> Any:
        return (await self.ask(server, PREPARE, claim))[claim.uid]

    async def unprepare(self, server: str, claim: Claim) -> str:
        """Unprepare a claim; return the error."""
        return str((await self.ask(server, UNPREPARE, claim))[claim.uid].error)

    async def healths(self, server: str) -> AsyncIterator[tuple[str, int, str]]:
        """Watch a plugin's device: yield pool, status and message of each report."""
        path = await self._socket(server)
        async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
            call = channel.unary_stream(
                "/v1alpha1.DRAResourceHealth/NodeWatchResources",
                request_serializer=api.Empty.SerializeToString,
                response_deserializer=api.DevicesHealth.FromString,
            )(api.Empty(), timeout=TIMEOUT)
            # Not `async for`: left early, the generator and the call refer to each other, and the
            # connection stays open until Python finds this cycle.
            while (report := await call.read()) is not grpc.aio.EOF:
                (one,) = report.devices
                yield one.device.pool_name, one.health, one.message


class Claim:
    """A claim with its Pod, whose programs are real processes."""

    def __init__(self, node: Node, name: str, uid: str, pod: Body, job: str = "") -> None:
        self.node = node
        self.name = name
        self.uid = uid
        self.pod = pod
        self.job = job
        """UID of the job, if it is that of an attempt."""
        self.started = datetime.now(UTC)

    @property
    def namespace(self) -> str:
        return self.node.namespace

    @property
    def file(self) -> Path:
        return self.node.cdi / f"partita.dev-slice-{self.uid}-{self.node.name}.json"

    @property
    def edits(self) -> Body:
        """What the runtime does to the containers."""
        (device,) = json.loads(self.file.read_text())["devices"]
        return dict(device["containerEdits"])

    @property
    def environment(self) -> dict[str, str]:
        split = (variable.partition("=") for variable in self.edits["env"])
        return {name: value for name, _, value in split}

    @property
    def path(self) -> str:
        claims = f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims"
        return f"{claims}/{self.name}"

    def place(self, program: subprocess.Popen[str]) -> None:
        """Put a process into the Pod."""
        folder = self.node.proc / str(program.pid)
        folder.mkdir(parents=True, exist_ok=True)
        pod = self.pod["metadata"]["uid"]
        (folder / "cgroup").write_text(f"0::/kubepods/besteffort/pod{pod}/main\n")
        (folder / "status.new").symlink_to(f"/proc/{program.pid}/status")
        (folder / "status.new").replace(folder / "status")  # or of another that had the PID

    def run(self, *steps: str, **more: str) -> subprocess.Popen[str]:
        """Start a CUDA program in the Pod."""
        return self.start(self.node.gpus.built.program, "wait:50", *steps, **more)

    def start(self, *command: object, **more: str) -> subprocess.Popen[str]:
        """Start a program in the Pod, with what its claim gives it."""
        given = self.environment
        for mount in self.edits.get("mounts", ()):  # the pipes of MPS
            pipes = mount["hostPath"].replace(RUN_DIRECTORY, str(self.node.paths.run))
            given["CUDA_MPS_PIPE_DIRECTORY"] = pipes
        program = self.node.gpus.start(*command, **(given | more))
        self.place(program)
        return program

    async def set_entry(self, **fields: Any) -> None:
        """Play the operator: change the entry in the ledger."""
        patch = {"status": {"allocations": {self.uid: fields}}}
        (await self.node.api.patch(f"{self.node.path}/status", patch)).ok()

    async def is_ended(self, grace: float) -> None:
        """Play the operator: the Pod is being ended, and killed after so many seconds."""
        now = datetime.now(UTC)
        deadline = now + timedelta(seconds=grace)
        await self.set_entry(releasingSince=now.isoformat(), releaseDeadline=deadline.isoformat())

    async def ends(self, phase: str = "Succeeded", code: int = 0) -> None:
        """Play kubelet: it unprepares the claim before it says that the Pod is over."""
        assert await Driver(self.node.kubelet.folder).unprepare(self.node.name, self) == ""
        now = datetime.now(UTC)
        state = {
            "exitCode": code,
            "startedAt": self.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "finishedAt": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        await self.node.report_container(self.pod, {"state": {"terminated": state}}, phase=phase)

    async def release(self) -> None:
        """Play the operator: the allocation goes."""
        patch = {"status": {"allocations": {self.uid: None}}}
        (await self.node.api.patch(f"{self.node.path}/status", patch)).ok()

    def used(self, body: Body) -> Body:
        """What the GPUServer says that it uses."""
        return dict(((body["status"].get("usage") or {}).get("jobs") or {}).get(self.uid) or {})

    async def events(self) -> list[Body]:
        """What was said about the job, or about the Pod of the claim."""
        path = f"/api/v1/namespaces/{self.node.namespace}/events"
        items = (await self.node.api.get(path)).ok().body["items"]
        subjects = {self.job, self.pod["metadata"]["uid"]}
        return [e for e in items if e["involvedObject"]["uid"] in subjects]


async def allocate_claim(
    node: Node,
    name: str,
    memory: int = 1000,
    *,
    threads: int = 50,
    in_ledger: bool = True,
    parameters: Body | None = None,
    result: Body | None = None,
    beside: Iterable[Node] = (),
    pod: Body | None = None,
    container: Body | None = None,
    entry: Body | None = None,
    job: bool = False,
) -> Claim:
    """Allocate a claim of a Pod, as the operator and kube-scheduler do.

    With `beside` it is also on these GPUs, whose ledgers stay as they are.
    `pod` is an existing Pod that uses it, too; `container` has further fields of the container of
    a new one. With `job`, it is the claim of the first attempt of a job with this name.
    """
    of_job: Body = {"job": name, "jobUID": f"uid-{name}"} if job else {}
    pod_name = f"{name}-1" if job else f"{name}-pod"
    name = own_claim_name(pod_name) if job else name
    claims = [{"name": "gpu", "resourceClaimName": name}]
    using = {"resources": {"claims": [{"name": "gpu"}]}, **(container or {})}
    spec = {"resourceClaims": claims}
    pod = pod or await node.make_pod(pod_name, container=using, spec=spec)
    claim = await create_claim(node, name, pod, of_job.get("jobUID", ""))
    meta = pod["metadata"]
    if in_ledger:
        fields: Body = {
            "namespace": node.namespace,
            "name": name,
            **of_job,
            "pod": meta["name"],
            "podUID": meta["uid"],
            "memory": f"{memory}Mi",
            "threadPercent": threads,
            "since": datetime.now(UTC).isoformat(),
        }
        await claim.set_entry(**fields | (entry or {}))
    slice_of = {"memory": f"{memory}Mi", "threadPercent": threads}
    await reserve(claim, slice_of | (parameters or {}), result, beside)
    return claim


async def create_claim(node: Node, name: str, pod: Body, job: str = "") -> Claim:
    """Create the claim of a Pod."""
    namespaced = f"/apis/resource.k8s.io/v1/namespaces/{node.namespace}/resourceclaims"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpus.gpu.partita.dev"}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": node.namespace},
        "spec": {"devices": {"requests": [request]}},
    }
    made = (await node.api.post(namespaced, body)).ok().body
    return Claim(node, name, made["metadata"]["uid"], pod, job)


async def reserve(
    claim: Claim, parameters: Body, result: Body | None = None, beside: Iterable[Node] = ()
) -> None:
    """Write the allocation of a claim, and reserve it for its Pod.

    `parameters` and `result` have further fields of the allocation, which may be nonsense. It is on
    the GPUs `beside`, too.
    """
    node, meta = claim.node, claim.pod["metadata"]
    slices = [
        SliceParameters(gpu_server=one.name, gpu=one.uuid, memory=MIB) for one in (node, *beside)
    ]
    allocation = claim_allocation(claim.uid, "gpu", slices, "node-a", datetime.now(UTC))
    (device, *_), (config, *_) = allocation["devices"].values()
    config["opaque"]["parameters"] |= parameters
    device |= result or {}
    status = {
        "allocation": allocation,
        "reservedFor": [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}],
    }
    (await node.api.patch(f"{claim.path}/status", {"status": status})).ok()


async def allocate(node: Node, name: str, memory: int, **entry: str) -> Claim:
    """Allocate so many MiB to the first attempt of a job with this name, and prepare its claim.

    `entry` has further fields of its entry in the ledger.
    """
    return await prepare_claim(node, name, memory, job=True, entry=entry)


async def running(node: Node, name: str) -> tuple[Claim, subprocess.Popen[str]]:
    """Start a job with a program, and wait until the GPUServer says what it uses."""
    job = await allocate(node, name, 1000)
    program = job.run("alloc:100", "forever")
    await node.until(lambda b: job.used(b).get("peakMemory") == "400Mi")
    return job, program


async def prepare_claim(node: Node, name: str, memory: int, **more: Any) -> Claim:
    """Allocate a claim of a Pod and prepare it, so that the Pod's containers can start."""
    claim = await allocate_claim(node, name, memory, threads=100, **more)
    prepared = await Driver(node.kubelet.folder).prepare(node.name, claim)
    assert prepared.error == ""
    return claim
