"""Failures that the GPU's side brought about: full memory, and MPS that lets nobody in."""

import pytest

from jobs.plans import NOW, around, attempt, failed, last, with_attempts
from partita.jobs.lifecycle import plan_job
from partita.jobs.system_failures import MAX_REFUSALS, MAX_SYSTEM_FAILURES
from partita.models import Outcome, Phase
from support.builders import GIB, at, seconds

CUDA_OOM = "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
NOT_READY = "RuntimeError: CUDA error: MPS server is not ready to accept new MPS client requests"
TERMINATED = "CUDA error: the MPS client has been terminated by the server"


class TestMemory:
    def test_a_refusal_far_below_the_allocation_is_not_the_jobs(self):
        made = failed(CUDA_OOM, peak=7 * GIB)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.SYSTEM_FAILURE)
        assert last(made).message == (
            "GPU memory was refused to it with 7.0 GiB in use of 8.0 GiB allocated: the GPU itself was "
            f"full, which is not its failure: {CUDA_OOM}"
        )

    @pytest.mark.parametrize(("peak", "own"), [(7.19, False), (7.21, True), (None, True)])
    def test_from_90_percent_on_it_is_the_jobs_and_where_nobody_measured(
        self, peak: float | None, *, own: bool
    ):
        made = failed(CUDA_OOM, peak=None if peak is None else int(peak * GIB))
        assert (last(made).outcome is Outcome.OUT_OF_MEMORY) is own

    @pytest.mark.parametrize(
        ("said", "own"),
        [
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB", True),
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", False),
            ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6442450944 bytes", True),
            ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,192 bytes", False),
        ],
    )
    def test_what_was_refused_counts_as_needed(self, said: str, *, own: bool):
        made = failed(said, peak=2 * GIB)
        assert (last(made).outcome is Outcome.OUT_OF_MEMORY) is own

    def test_it_is_judged_only_once_the_peak_can_be_known(self):
        made = failed(CUDA_OOM, peak=GIB, ended_since={1: NOW})
        assert (last(made).outcome, made.wake) == (None, NOW + seconds(2))

    def test_it_is_excused_only_so_often(self):
        assert last(failed(CUDA_OOM, MAX_REFUSALS - 1, peak=GIB)).outcome is Outcome.SYSTEM_FAILURE
        made = failed(CUDA_OOM, MAX_REFUSALS, peak=GIB)
        assert (made.phase, last(made).outcome) == (Phase.FAILED, Outcome.FAILED)
        assert "so it counts as its own failure" in made.message


class TestMPS:
    @pytest.mark.parametrize(
        "said",
        [
            "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
            "CUDA error: the remote procedural call between the MPS server and the MPS client failed",
            NOT_READY,
            "failed call to cuInit: CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
            "the hardware resources required to support device connections have been exhausted",
            "cudaErrorMpsMaxConnectionsReached",
            TERMINATED,
        ],
    )
    def test_a_program_that_mps_does_not_let_in_has_not_failed(self, said: str):
        made = failed(said, peak=0)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.SYSTEM_FAILURE)

    def test_one_that_used_the_gpu_before_was_let_in(self):
        made = failed(NOT_READY, peak=GIB)
        assert (made.phase, last(made).outcome) == (Phase.FAILED, Outcome.FAILED)

    def test_one_that_the_agent_had_ended_above_its_processes_has(self):
        why = "it had 3 MPS clients with 2 allocated (spec.processes)"
        made = failed(TERMINATED, peak=GIB, above_processes=why)
        assert (last(made).outcome, made.phase) == (Outcome.FAILED, Phase.FAILED)
        assert why in made.message

    def test_the_backoff_doubles(self):
        job = with_attempts(*(attempt(n, Outcome.SYSTEM_FAILURE) for n in (1, 2, 3)))
        assert plan_job(job, around(), at(51)).wake == at(50) + seconds(8)

    def test_it_does_not_go_on_for_ever(self):
        made = failed(NOT_READY, MAX_SYSTEM_FAILURES - 1)
        assert (made.phase, made.reason) == (Phase.FAILED, "SystemFailure")
        assert "annotation partita.dev/retry" in made.message
