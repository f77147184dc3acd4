"""What the containers of a claim get: the CDI file, and the texts that may not become paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.entries import job_entry, pod_entry
from partita.agent.dra.cdi import CDIFolder, ClaimDevice
from partita.agent.dra.device import ClaimGPU, allocated_devices, claim_device
from partita.agent.dra.sockets import DriverSockets
from partita.agent.errors import PrepareError
from partita.agent.mps.exchange import MPSReport
from partita.constants import LONGEST_KUBELET_DIRECTORY
from partita.models import Framework, SharingMode
from partita.models.slice_parameters import SliceParameters
from partita.pods.claim_allocation import claim_allocation
from partita.pods.job_pod import build_job_pod
from pods.builders import GOLDEN as JOBS
from pods.builders import read_allocation, read_job
from support.builders import START

GOLDEN = Path(__file__).parent / "golden"
GIBI = 1 << 30
UID = "11111111-2222-4333-8444-555555555555"
ENTRY = pod_entry(
    "serve-1", "serve-1-gpu", uid=UID, pod_uid="pod-uid", memory=6 * GIBI, clients=2,
    memory_limit=8 * GIBI, thread_percent=50,
)  # fmt: skip
GPU = ClaimGPU(
    server="gpus-0",
    uuid="GPU-00000001-0000-4000-8000-000000000000",
    memory=80 * GIBI,
    mode=SharingMode.MPS,
    slots=4,
    mps=MPSReport(daemon=1, protocol=2),
)
DRIVER = replace(GPU, driver_limits=True)
V3 = replace(GPU, mps=MPSReport(daemon=1, protocol=3))
STATIC_SM = replace(GPU, mps=MPSReport(daemon=1, protocol=2, sm_partitions=("a", "b", "c", "d")))
TIME_SLICING = replace(GPU, mode=SharingMode.TIME_SLICING, mps=None)
RESTRICTED = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}


def pod(*environments: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Pod whose containers use the claim, with these variables."""
    containers = [
        {
            "name": f"c{number}",
            "env": [
                {"name": name, **(value if isinstance(value, dict) else {"value": value})}
                for name, value in variables.items()
            ],
            "resources": {"claims": [{"name": "gpu"}]},
            "securityContext": RESTRICTED,
        }
        for number, variables in enumerate(environments or ({},))
    ]
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu-6gi"}]
    return {
        "metadata": {"uid": "pod-uid"},
        "spec": {"containers": containers, "resourceClaims": claims, **spec},
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "serve-1-gpu"}]},
    }


def claim_of(*slices: SliceParameters, name: str = "serve-1-gpu") -> dict[str, Any]:
    """A claim that got this."""
    allocation = claim_allocation(UID, "gpu", slices, "node-1", START)
    return {"metadata": {"uid": UID, "name": name}, "status": {"allocation": allocation}}


def device_of(
    gpu: ClaimGPU,
    body: dict[str, Any],
    framework: Framework = Framework.NONE,
    slot: int | None = None,
) -> ClaimDevice:
    parameters = SliceParameters(
        gpu_server=gpu.server, gpu=gpu.uuid, memory=ENTRY.memory, framework=framework
    )
    return claim_device(gpu, claim_of(parameters), ENTRY, body, slot=slot)


CASES = sorted(path.parent for path in JOBS.glob("*/allocation.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pod_of_a_job_gets_the_variables_that_the_operator_expects(case: Path):
    """The golden files of the Pods say which."""
    job, allocation = read_job(case), read_allocation(case)
    body = build_job_pod(job, allocation).manifest
    body["metadata"]["uid"] = "pod-uid"
    gpu = ClaimGPU(
        server="gpus-0",
        uuid=allocation.uuids[0],
        memory=allocation.total_memory,
        mode=allocation.mode,
        slots=16,
        driver_limits=allocation.driver_limits,
        mps=MPSReport(daemon=1, protocol=2) if allocation.mode is SharingMode.MPS else None,
    )
    entry = job_entry(
        job.metadata.name, allocation.attempt, pod_uid="pod-uid", memory=allocation.memory,
        clients=job.spec.processes, memory_limit=allocation.memory_limit,
        thread_percent=allocation.thread_percent,
    )  # fmt: skip
    slices = [
        SliceParameters(
            gpu_server=f"gpus-{n}",
            gpu=uuid,
            memory=allocation.memory,
            framework=job.spec.framework,
            oversubscription=allocation.oversubscription,
            yields=allocation.yields,
        )
        for n, uuid in enumerate(allocation.uuids)
    ]
    claim = claim_of(*slices, name=entry.name)
    device = claim_device(gpu, claim, entry, body, slot=None)
    assert device.variables == yaml.safe_load((case / "variables.yaml").read_text())
    assert device.key == (entry.uid, "pod-uid")


def test_each_of_several_gpus_shows_all_of_them():
    gpus = [
        replace(TIME_SLICING, mode=SharingMode.EXCLUSIVE, server=f"gpus-{n}", uuid=f"GPU-{n}")
        for n in (0, 1)
    ]
    claim = claim_of(
        *(SliceParameters(gpu_server=g.server, gpu=g.uuid, memory=8 * GIBI) for g in gpus)
    )
    made = [claim_device(gpu, claim, ENTRY, pod(), slot=None) for gpu in gpus]
    assert [device.id for device in made] == [f"partita.dev/slice={UID}-gpus-{n}" for n in (0, 1)]
    assert {device.variables["NVIDIA_VISIBLE_DEVICES"] for device in made} == {"GPU-0,GPU-1"}
    with pytest.raises(PrepareError, match="and not for GPU-2 of gpus-1"):
        claim_device(replace(gpus[1], uuid="GPU-2"), claim, ENTRY, pod(), slot=None)
    del claim["status"]["allocation"]["devices"]["config"][1]
    with pytest.raises(PrepareError, match="instead of those of its 2 devices"):
        claim_device(gpus[0], claim, ENTRY, pod(), slot=None)


@pytest.mark.parametrize(
    ("name", "gpu", "framework", "slot"),
    [
        ("mps", GPU, Framework.PYTORCH, None),
        ("mps-v3", V3, Framework.NONE, 3),
        ("static-sm", STATIC_SM, Framework.CUPY, 1),
        ("time-slicing", TIME_SLICING, Framework.TENSORFLOW, None),
    ],
)
def test_the_file_of_a_claim(
    name: str,
    gpu: ClaimGPU,
    framework: Framework,
    slot: int | None,
    golden: Callable[[Path, Any], None],
):
    device = device_of(gpu, pod(), framework, slot)
    golden(GOLDEN / f"claim-{name}.yaml", device.dump())


def variables(*environments: dict[str, Any], gpu: ClaimGPU = GPU, **spec: Any) -> dict[str, str]:
    made = device_of(gpu, pod(*environments, **spec), Framework.PYTORCH)
    return dict(made.variables)


OPTIONS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
FRACTION = "per_process_memory_fraction:0.0375"


@pytest.mark.parametrize(
    ("environments", "expected"),
    [
        ((OPTIONS, OPTIONS), f"expandable_segments:True,{FRACTION}"),
        ((OPTIONS, {}), None),
        ((OPTIONS, {"PYTORCH_ALLOC_CONF": "backend:native"}), None),
        (({"PYTORCH_ALLOC_CONF": {"valueFrom": {}}},), None),
    ],
)
def test_options_of_pytorch_are_kept_if_all_containers_agree(
    environments: tuple[dict[str, Any], ...], expected: str | None
):
    assert variables(*environments).get("PYTORCH_ALLOC_CONF") == expected


def test_the_driver_limits_each_container_that_uses_the_claim():
    one = variables(gpu=DRIVER)
    assert one["NVIDIA_GPU_MEMORY_LIMIT"] == str(8 * 1024 + 2 * 512)
    with_proxy = pod()
    with_proxy["spec"]["containers"].append({"name": "proxy", "image": "x"})
    made = device_of(DRIVER, with_proxy, Framework.PYTORCH)
    assert dict(made.variables) == one


def test_a_pod_of_low_priority_yields():
    assert "CUDA_MPS_CLIENT_PRIORITY" not in variables()
    assert variables(priority=-10)["CUDA_MPS_CLIENT_PRIORITY"] == "1"


def test_a_container_that_may_be_root_does_not_reach_mps_with_protocol_3():
    body = pod()
    body["spec"]["containers"][0].pop("securityContext")
    with pytest.raises(PrepareError, match="c0 may run as root"):
        device_of(V3, body, slot=0)
    body["spec"]["hostUsers"] = False
    assert device_of(V3, body, slot=0).slot == 0


def test_an_allocation_of_other_drivers_is_none_of_ours():
    def claim(*drivers: str) -> dict[str, Any]:
        results = [{"driver": driver, "pool": "p", "device": "gpu"} for driver in drivers]
        return {"status": {"allocation": {"devices": {"results": results}}}}

    assert list(allocated_devices(claim("nic.example.org", "gpu.partita.dev"))) == ["p"]
    for drivers in ((), ("nic.example.org",), ("gpu.partita.dev", "gpu.partita.dev")):
        with pytest.raises(PrepareError, match="Partita's operator allocates"):
            allocated_devices(claim(*drivers))
    with pytest.raises(PrepareError, match="has 0 devices"):
        allocated_devices({"status": {}})


VALUES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"))
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]*", fullmatch=True)


@given(
    uid=st.uuids(),
    allocation=st.uuids(),
    pod_uid=st.uuids(),
    slot=st.none() | st.integers(0, 127),
    env=st.dictionaries(NAMES, VALUES),
    mounts=st.dictionaries(VALUES, VALUES),
)
def test_a_file_contains_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    uid: UUID,
    allocation: UUID,
    pod_uid: UUID,
    slot: int | None,
    env: dict[str, str],
    mounts: dict[str, str],
):
    folder = CDIFolder(tmp_path_factory.mktemp("cdi"))
    device = ClaimDevice(str(uid), "gpus-0", (str(allocation), str(pod_uid)), slot, env, mounts)
    beside = replace(device, server="gpus-1")
    folder.write(device)
    folder.write(beside)
    assert folder.read(str(uid), "gpus-0") == device
    assert list(folder.devices()) == list(folder.devices(str(uid))) == [device, beside]
    assert list(folder.devices(UID)) == []
    folder.remove(str(uid), "gpus-0")
    assert folder.read(str(uid), "gpus-0") is None
    assert list(folder.devices()) == [beside]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"devices": [{}]}', '{"devices": 1}'])
def test_a_file_that_is_not_valid_is_no_device(tmp_path: Path, text: str):
    (tmp_path / f"partita.dev-slice-{UID}-gpus-0.json").write_text(text)
    folder = CDIFolder(tmp_path)
    assert folder.read(UID, "gpus-0") is None
    assert list(folder.devices()) == []
    folder.remove(UID, "gpus-0")
    assert list(tmp_path.iterdir()) == []


def test_a_file_says_nothing_about_another_claim(tmp_path: Path):
    folder = CDIFolder(tmp_path)
    device = ClaimDevice(UID, "gpus-0", (UID, "pod"))
    other = UID.replace("1", "2")
    file = tmp_path / f"partita.dev-slice-{other}-gpus-0.json"
    file.write_text(json.dumps(device.dump()))
    assert folder.read(other, "gpus-0") is None


@given(text=st.text(max_size=80))
def test_no_text_of_a_claim_becomes_a_path(text: str):
    folder = CDIFolder(Path("/nonexistent"))
    for act in (folder.read, folder.remove):
        with pytest.raises(PrepareError, match="not a UID"):
            act(text, "gpus-0")


@given(text=st.text(max_size=300))
def test_a_pool_is_only_compared_with_the_sockets_of_agents(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    sockets = DriverSockets(tmp_path_factory.mktemp("kubelet"))
    own = sockets.service("gpus-0")
    own.parent.mkdir(parents=True)
    own.touch()
    (own.parent.parent / "other.sock").touch()
    assert sockets.of_agent("gpus-0") == own
    assert sockets.of_agent(text) is None
    assert sockets.of_agent("../other") is None


@given(number=st.integers(0, 99))
def test_the_paths_of_sockets_are_short_enough_and_differ(number: int):
    """unix(7): at most 107 characters."""
    longest = f"{'p' * 52}-{number:010}"
    sockets = DriverSockets(Path(f"/{'k' * (LONGEST_KUBELET_DIRECTORY - 1)}"))
    for path in (sockets.registration(longest), sockets.service(longest)):
        assert len(str(path)) <= 107
    assert sockets.service(longest) != sockets.service(f"{'p' * 52}-{number + 1:010}")
    assert sockets.service("gpus-0").name == "gpus-0.sock"
    assert sockets.registration("gpus-0").name == "gpu.partita.dev-gpus-0-reg.sock"
