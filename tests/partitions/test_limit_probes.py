"""When a GPU gets a probe Pod, and when the Pod is deleted."""

from typing import Any

import pytest

from partita.models import GPUServer
from partita.partitions.limit_probes import LimitProbes, ProbeChanges, plan_probes
from partita.pods.server_pod import ServerPodSettings
from partita.store.state import State
from partita.store.views import PodView
from support.builders import (
    DELETING,
    SERVER_NAMESPACE,
    a_partition,
    a_server,
    a_state,
    node_body,
    owner,
    partition_body,
    pod_status,
    server_body,
    server_pod_body,
    view_of,
)
from support.fake_kube import FakeKube

UNKNOWN = {"capabilities": {"limitHook": "Unknown"}}
CLAIM = "shared-0-probe.partita.dev"
HOOK_FAILED = pod_status("Failed", exit_code=128, message="error running createRuntime hook")
SETTINGS = ServerPodSettings(SERVER_NAMESPACE, "partita:1", "partita-agent")


def probe_body(status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    meta = {"ownerReferences": [owner("GPUServer", "shared-0")], **meta}
    body = server_pod_body("shared-0-probe", **meta)
    return body | {"status": status or {"phase": "Running"}}


SERVER_POD = view_of(server_pod_body("shared-0"))
PROBE = view_of(probe_body())


def planned(
    server: GPUServer, probe: PodView | None = None, pod: PodView | None = SERVER_POD
) -> ProbeChanges:
    return plan_probes(
        [server],
        {"shared-0": pod} if pod is not None else {},
        {"shared-0": probe} if probe is not None else {},
    )


WAITING = a_server(status=UNKNOWN, conditions={"Ready": "False"})


def test_a_gpu_whose_agent_waits_for_a_probe_gets_one():
    assert planned(WAITING) == ProbeChanges(create=[WAITING])
    assert planned(WAITING, PROBE) == ProbeChanges()


@pytest.mark.parametrize("hook", ["Applied", "NotApplied", "Failed", None])
def test_a_probe_is_deleted_once_its_result_is_known(hook):
    capabilities = {"capabilities": {"limitHook": hook} if hook else {}}
    assert planned(a_server(status=capabilities), PROBE) == ProbeChanges(delete=[PROBE])
    assert planned(a_server(), PROBE) == ProbeChanges(delete=[PROBE])


@pytest.mark.parametrize(
    "server",
    [
        a_server(status=UNKNOWN, metadata=DELETING),
        a_server(status=UNKNOWN, drainSince="2026-11-21T12:00:00Z"),
        a_server(status=UNKNOWN, conditions={"Faulted": "True"}),
        a_server(status={**UNKNOWN, "uuid": ""}),
    ],
    ids=["released", "drained", "faulted", "without a GPU"],
)
def test_a_gpu_out_of_service_has_no_probe(server):
    assert planned(server) == ProbeChanges()
    assert planned(server, PROBE) == ProbeChanges(delete=[PROBE])


@pytest.mark.parametrize(
    "pod",
    [
        None,
        view_of(server_pod_body("shared-0", phase="Failed")),
        view_of(server_pod_body("shared-0", **DELETING)),
    ],
    ids=["missing", "failed", "deleted"],
)
def test_a_gpu_without_an_agent_has_no_probe(pod):
    assert planned(WAITING, pod=pod) == ProbeChanges()
    assert planned(WAITING, PROBE, pod=pod) == ProbeChanges(delete=[PROBE])


def test_a_failed_probe_is_kept_until_the_agent_has_read_why():
    failed = view_of(probe_body(HOOK_FAILED))
    assert planned(WAITING, failed) == ProbeChanges()
    decided = a_server(status={"capabilities": {"limitHook": "Failed"}})
    assert planned(decided, failed) == ProbeChanges(delete=[failed])


@pytest.mark.parametrize("reason", ["DeadlineExceeded", "Evicted", "UnexpectedAdmissionError"])
def test_a_probe_that_kubernetes_ended_is_replaced(reason):
    ended = view_of(probe_body({"phase": "Failed", "reason": reason}))
    assert planned(WAITING, ended) == ProbeChanges(delete=[ended])


def test_a_probe_that_is_being_deleted_is_waited_for():
    leaving = view_of(probe_body(**DELETING))
    assert planned(WAITING, leaving) == ProbeChanges()
    assert planned(a_server(), leaving) == ProbeChanges()


def a_world() -> State:
    return a_state(
        partition_body(), node_body(), server_body(status=UNKNOWN), server_pod_body("shared-0")
    )


async def reconcile(probes: LimitProbes, state: State) -> None:
    await probes.reconcile(a_partition(), state.servers_of("shared"), {"shared-0": SERVER_POD})


async def test_a_probe_is_not_taken_for_the_server_pod():
    state = a_world()
    state.apply_server(server_body(status={**UNKNOWN, "podUID": ""}))
    state.apply_pod(probe_body())
    server, probe = state.server_pod("shared-0"), state.probe_pod(state.servers["shared-0"])
    assert server is not None
    assert probe is not None
    assert (server.name, probe.name) == ("shared-0", "shared-0-probe")


async def test_a_probe_gets_a_claim_which_is_deleted_with_it_and_the_next_one_comes_after_a_pause():
    kube, state = FakeKube(), a_world()
    probes = LimitProbes(kube, state, SETTINGS)  # type: ignore[arg-type]
    await reconcile(probes, state)
    claim = kube.objects[CLAIM]
    (owner_of_claim,) = claim["metadata"]["ownerReferences"]
    assert (owner_of_claim["kind"], owner_of_claim["name"]) == ("Pod", "shared-0-probe")
    assert claim["metadata"]["namespace"] == SERVER_NAMESPACE
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["pool"] == "shared-0"
    assert state.probe_pod(state.servers["shared-0"]) is not None
    state.apply_pod(probe_body(), deleted=True)
    kube.objects.clear()
    await reconcile(probes, state)
    assert kube.created == ["shared-0-probe"]


async def test_a_probe_whose_claim_an_earlier_operator_did_not_create_gets_it_once():
    kube, state = FakeKube(), a_world()
    state.apply_pod(probe_body({"phase": "Pending"}) | {"spec": {}})
    for _ in range(2):
        await reconcile(LimitProbes(kube, state, SETTINGS), state)  # type: ignore[arg-type]
    assert kube.objects.keys() == {CLAIM}
    assert [name for verb, name, _ in kube.writes if verb == "patch"] == [CLAIM]
    kube, state = FakeKube(probe_body()), a_world()  # one of an earlier GPUServer is waited for
    await reconcile(LimitProbes(kube, state, SETTINGS), state)  # type: ignore[arg-type]
    assert kube.created == []
