"""What each Xid of NVIDIA's catalogue does to a GPU and its jobs, and any order of them."""

from __future__ import annotations

import random

import pytest

from agent.catalogue import IGNORE, RESET, RESTART_APP
from jobs.plans import NOW, around, attempt, ended, last, with_attempts
from partita.agent.errors import GPULostError, NVMLError
from partita.agent.gpu.gpu_health import GPUHealth
from partita.agent.health import Health, HealthProblem, Source
from partita.agent.times import AgentTimes
from partita.jobs.lifecycle import plan_job
from partita.models import Attempt, Outcome
from partita.scheduling.agent_reports import fault_of, report_of
from partita.scheduling.fault_policy import ending_of
from partita.store.views import PodView
from support.builders import a_pod, a_server, an_allocation, at, pod_status

RESTARTS_NODE = {79, 151}
"""RESTART_BM and RESTART_VM: more than a reset."""
GOES_ON = IGNORE | {45, 152, 153} | RESTART_APP
"""45 follows another Xid or the end of a program; 152 and 153 apply to no GPU."""
MPS_FAULT = HealthProblem("MPSFault", "all is lost", faulted=True)

JOB = with_attempts(attempt(), retry={"limit": 0})
RUNNING = a_pod(status=pod_status("Running"))
FAILED = a_pod(status=ended(1, "CUDA error: uncorrectable ECC error encountered"))


def judged(pod: PodView, health: Health, *, alone: bool = False) -> Attempt:
    """The attempt of a job on the GPU, as the operator judges it by the GPUServer."""
    found = health.conditions()
    ready = {"type": "Ready", "status": str(found.ready), "reason": found.reason}
    conditions = [ready | {"message": found.message}]
    if found.fault is not None:
        fault = {"type": "Faulted", "status": "True", "reason": found.fault.reason}
        conditions.append(fault | {"message": found.fault.message})
    server = a_server(status={"conditions": conditions})
    told = fault_of(server, RUNNING)
    there = around(
        pod,
        allocated=1,
        ending=told and ending_of("shared-0", told, an_allocation(alone=alone)),
        ended_since={1: at(60)},
        hardware=report_of("u", [server]).hardware,
    )
    return last(plan_job(JOB, there, NOW))


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("xid", range(1, 256))
def test_each_xid_does_what_nvidias_catalogue_says(xid: int, *, alone: bool):
    """The same with MPS, which is asked about 13 and 31 as well (whole/test_faults)."""
    health = Health()
    gpu = GPUHealth(health, lambda: False, AgentTimes())
    gpu.check(None, 0.0)
    gpu.event(xid, 0.0)
    running, failed = (judged(pod, health, alone=alone) for pod in (RUNNING, FAILED))
    assert health.conditions().ready == (xid in GOES_ON)
    resets = xid in RESET | RESTARTS_NODE
    assert running.outcome == (Outcome.GPU_FAULT if resets else None)
    own = xid in GOES_ON - {94}  # 94 is the hardware's, though CUDA ends the program
    assert failed.outcome == (Outcome.FAILED if own else Outcome.GPU_FAULT)
    assert not running.fault_suspect
    assert not failed.fault_suspect


@pytest.mark.parametrize("mps", [True, False])
@pytest.mark.parametrize("driver_tells", [True, False])
def test_after_any_errors_no_job_is_charged_and_none_ends_that_need_not(
    *, driver_tells: bool, mps: bool
):
    """1,000 Xids, errors of NVML and recovery actions beside four jobs, in virtual seconds.

    Each time CUDA has ended one of the jobs. Errors of the hardware end MPS as well.
    """
    draw, now, health = random.Random(2 * driver_tells + mps), 0.0, Health()
    gpu = GPUHealth(health, lambda: False, AgentTimes())
    recovery, lost = 0, False
    for _ in range(1000):
        now += draw.choice([0.01, 1.0, 5.0, 20.0, 400.0])
        hardware = ends_all = False
        health.set(Source.MPS, None)
        match draw.randrange(6):
            case 0 | 1:
                xid = draw.choice([*GOES_ON, *RESET, *RESTARTS_NODE, 48, 154, 999])
                gpu.event(xid, now)
                ends_all = xid in RESET | RESTARTS_NODE
                hardware = xid not in GOES_ON - {94}
            case 2:
                health.set(Source.GPU, HealthProblem.of(GPULostError("it is off the bus")))
                hardware = ends_all = True
            case 3:
                gpu.sampled(now)
                gpu.answered(NVMLError("NVML_ERROR_UNKNOWN"), now)
            case 4:
                recovery = draw.randrange(8) if driver_tells else 0
                hardware = bool(recovery)
            case _:
                health.set(Source.GPU, None)
        if mps and hardware and draw.randrange(2):
            health.set(Source.MPS, MPS_FAULT)
            ends_all = True
        told = recovery if driver_tells else None
        gpu.check(told, now)
        assert not (health.conditions().ready and recovery), "it takes no jobs before it is well"
        failed, *running = (judged(pod, health) for pod in (FAILED, RUNNING, RUNNING, RUNNING))
        assert not any(job.fault_suspect for job in (failed, *running))
        if hardware or health.faulted:
            assert failed.outcome is Outcome.GPU_FAULT, "no job is charged for the hardware"
        for job in running:
            if ends_all:
                assert job.outcome is Outcome.GPU_FAULT, "what ends all jobs is told"
            elif not lost:
                assert job.outcome is None, "nothing has ended it"
        lost = health.faulted
