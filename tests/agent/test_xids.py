"""What each Xid of NVIDIA's catalogue does to a GPU and its jobs, and any order of them."""

from __future__ import annotations

import random

import pytest

from partita.agent.errors import GPULostError, NVMLError
from partita.agent.gpu.health import GPUHealth, SlowMetrics
from partita.agent.gpu.nvml import GPUEvent
from partita.agent.health import Health
from partita.agent.times import AgentTimes
from partita.models import Outcome
from partita.scheduling.agent_reports import fault_of
from partita.scheduling.fault_policy import GPUFault, ending_of
from support.builders import a_server, an_allocation

# https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, release 610.
IGNORE = {14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157}
IGNORE |= {160, 161}
RESTART_APP = {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83}
RESTART_APP |= {84, 85, 86, 88, 89, 94, *range(96, 106), *range(126, 136), 139}
RESET = {46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158}


def fault_in(health: Health) -> GPUFault | None:
    """The fault that the operator reads in the conditions of the GPUServer."""
    found = health.conditions()
    ready = {"type": "Ready", "status": str(found.ready), "reason": found.reason}
    conditions = [ready | {"message": found.message}]
    if found.fault is not None:
        fault = {"type": "Faulted", "status": "True", "reason": found.fault.reason}
        conditions.append(fault | {"message": found.fault.message})
    server = a_server(status={"conditions": conditions})
    told = fault_of(server, None)
    return told if told is not None and told.reason else None


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("xid", range(1, 256))
def test_each_xid_does_what_nvidias_catalogue_says(xid: int, *, alone: bool):
    """The same with MPS and time slicing: only 13 and 31 are MPS's as well (whole/test_faults)."""
    health = Health()
    gpu = GPUHealth(health, lambda: False, AgentTimes())
    gpu.check(SlowMetrics(None, None, None), 0.0)
    gpu.event(GPUEvent(xid), 0.0)
    fault = fault_in(health)
    assert health.conditions().ready == (xid in IGNORE | RESTART_APP)
    assert (fault is not None) == (xid in RESET)
    if fault is not None:
        ending = ending_of("shared-0", fault, an_allocation(alone=alone))
        assert (ending.outcome, ending.suspect) == (Outcome.GPU_FAULT, False)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("driver_tells", [True, False])
def test_after_any_errors_no_job_is_charged_and_none_ends_that_need_not(
    seed: int, *, driver_tells: bool
):
    """1,000 Xids, errors of NVML, and recovery actions of one GPU with jobs; seconds are virtual."""
    draw, now, health = random.Random(seed), 0.0, Health()
    gpu = GPUHealth(health, lambda: False, AgentTimes())
    recovery, errors, before = 0, 0, None
    for _ in range(1000):
        now += draw.choice([0.01, 1.0, 5.0, 20.0, 400.0])
        ends_all = False
        match draw.randrange(6):
            case 0 | 1:
                xid = draw.choice([*IGNORE, *RESTART_APP, *RESET, 154, 999])
                gpu.event(GPUEvent(xid), now)
                ends_all = xid in RESET
            case 2:
                gpu.lost(str(GPULostError("it has fallen off the bus")), now)
                ends_all = True
            case 3:
                gpu.sampled(now)
                gpu.answered(NVMLError("NVML_ERROR_UNKNOWN"), now)
            case 4:
                recovery = draw.randrange(5) if driver_tells else 0
                errors += draw.randrange(2)
            case _:
                gpu.found(now)
        told = recovery if driver_tells else None
        gpu.check(SlowMetrics(errors, None, None, recovery=told), now)
        conditions, fault = health.conditions(), fault_in(health)
        assert not (conditions.ready and recovery), "it takes no jobs before it was recovered"
        if fault is not None:
            assert not fault.may_be_a_programs, "no job is charged for the hardware"
        assert fault is not None if ends_all else not fault or before, "what ends all jobs is told"
        before = fault
