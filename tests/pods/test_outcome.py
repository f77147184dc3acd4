"""What a Pod's status says of its end."""

from datetime import UTC, datetime
from typing import Any

import pytest

from partita.models import Outcome
from partita.pods.memory_errors import (
    RAPIDS,
    TRITON,
    VLLM,
    VLLM_ENGINE,
    VLLM_PROFILING,
    XLA,
    is_gpu_out_of_memory,
)
from partita.pods.outcome import MAX_MESSAGE, PodOutcome, read_outcome

START, END = "2026-01-01T10:00:00Z", "2026-01-01T10:05:00Z"


def ended(name: str = "main", code: int = 1, **terminated: Any) -> dict[str, Any]:
    times = {"startedAt": START, "finishedAt": END}
    return {"name": name, "state": {"terminated": {"exitCode": code, **times, **terminated}}}


def failed(*containers: dict[str, Any], **status: Any) -> PodOutcome:
    return read_outcome({"phase": "Failed", "containerStatuses": list(containers), **status})


OUT_OF_MEMORY = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB",
    "RuntimeError: CUDA error: out of memory",
    "E failed to allocate 32.00M (33554432 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of me",
    (
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
        "CUDA_ERROR_OUT_OF_MEMORY"
    ),
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
    "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,512 bytes (allocated",
    (
        "ResourceExhaustedError: OOM when allocating tensor with shape[64,2016,9,9] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    ),
    "W Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB (rounded to 1342177280)",
    (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 7406166528 bytes."
    ),
    "RESOURCE_EXHAUSTED: Out of memory allocating 20029400304 bytes.",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0",
    "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
    "include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
    "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:200",
    "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory",
    "[defaultAllocator.cpp::allocate::39] Error Code 1: Cuda Runtime (out of memory)",
    (
        "[E:onnxruntime] CUDAExecutionProvider\nbfc_arena.cc: Failed to allocate memory for requested "
        "buffer of size 1024"
    ),
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    (
        "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease "
        "`--max-batch-prefill-tokens`"
    ),
]
OVER_BUDGET = {
    # https://github.com/vllm-project/vllm/issues/23192
    "ValueError: Free memory on device (7.34/139.72 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 125.75 GiB). Decrease GPU memory utilization or reduce GPU": VLLM,
    # https://github.com/vllm-project/vllm/issues/2248
    "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.": VLLM,
    # vllm/v1/core/kv_cache_utils.py
    "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 "
    "GiB KV cache is needed, which is larger than the available KV cache memory (1.25 GiB).": VLLM,
    # https://github.com/vllm-project/vllm/issues/8933
    "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that "
    "can be stored in KV cache (86432). Try increasing `gpu_memory_utilization` or": VLLM,
    # https://github.com/vllm-project/vllm/issues/56830
    "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory "
    "90.17 GiB. This happens when other processes": VLLM_PROFILING,
    # vllm/v1/engine/utils.py
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
    "proc(s): {}": VLLM_ENGINE,
    # tensorflow/stream_executor/cuda/cuda_driver.cc
    "failed to allocate 6.45G (6929413888 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY": XLA,
    # rmm/mr/device/pool_memory_resource.hpp
    "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/rmm/mr/device/"
    "pool_memory_resource.hpp:276: Maximum pool size exceeded": RAPIDS,
    # triton-inference-server/core, src/cuda_memory_manager.cc
    "E0410 server.cc:236] Failed to finalize CUDA memory manager: CNMEM_STATUS_OUT_OF_MEMORY": TRITON,
}
SOMETHING_ELSE = [
    "",
    "MemoryError",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: not enough memory: you tried to",
    (
        "OOM when allocating tensor with shape[1,5095] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"
    ),
    (
        "W Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. "
        "The caller indicates that this is not a failure, but may mean that there could be"
    ),
    "grpc._channel._InactiveRpcError: StatusCode.RESOURCE_EXHAUSTED: Received message larger than",
    "google.api_core.exceptions: RESOURCE_EXHAUSTED: Quota exceeded for quota metric",
    "out of memory",
    "fork: Cannot allocate memory",
    "CUDA error: an illegal memory access was encountered",
    "using CUDA 12.4\nkernel: Out of memory: Killed process 12",
    "bfc_arena.cc: Failed to allocate memory for requested buffer of size 1024",
]


@pytest.mark.parametrize("message", OUT_OF_MEMORY)
def test_a_program_that_ran_out_of_gpu_memory_is_told_by_its_last_words(message):
    found = failed(ended(message=f"Traceback ...\n{message}\n"))
    assert (found.outcome, found.exit_code) == (Outcome.OUT_OF_MEMORY, 1)
    assert message.splitlines()[0] in found.message


@pytest.mark.parametrize(("message", "found"), OVER_BUDGET.items())
def test_a_framework_that_asked_for_more_than_its_slice_is_named(message, found):
    assert failed(ended(message=f"{'INFO loading' * 50}\n{message}")).over_budget == found
    assert is_gpu_out_of_memory(message) == (found in {XLA, RAPIDS})


@pytest.mark.parametrize("message", SOMETHING_ELSE)
def test_other_failures_are_not_taken_for_it(message):
    assert failed(ended(message=message)).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("end", "outside", "gpu_error"),
    [
        ({"message": "CUDA error: the MPS client has been terminated by the server"}, True, True),
        ({"message": "cudaErrorMpsClientTerminated"}, True, True),
        ({"code": 137, "reason": "Error"}, True, False),
        ({"code": 137, "reason": "OOMKilled"}, False, False),
        ({"message": "RuntimeError: CUDA error: unspecified launch failure"}, False, True),
        ({"message": "cuInit: CUDA_ERROR_LAUNCH_FAILED"}, False, True),
        ({"message": "CUDA error: out of memory"}, False, False),
        ({"message": "using CUDA 12.4\nValueError"}, False, False),
        ({"code": 143}, False, False),
    ],
)
def test_it_is_told_whether_somebody_else_may_have_ended_it(end, outside, gpu_error):
    found = failed(ended(**end))
    assert (found.ended_from_outside, found.gpu_error) == (outside, gpu_error)


def test_a_program_that_got_over_it_has_succeeded():
    status = {"phase": "Succeeded", "containerStatuses": [ended(code=0, message=OUT_OF_MEMORY[0])]}
    found = read_outcome(status)
    assert (found.outcome, found.exit_code, found.message) == (Outcome.SUCCEEDED, 0, "")


def test_a_kill_for_the_node_s_memory_is_never_taken_for_the_gpu_s():
    found = failed(ended(code=137, reason="OOMKilled", message=OUT_OF_MEMORY[0]))
    assert (found.outcome, found.exit_code) == (Outcome.FAILED, 137)
    assert "raise resources.limits.memory" in found.message


def test_one_container_of_many_decides_and_is_named():
    found = failed(
        ended("board", code=143, reason="Error", finishedAt="2026-01-01T10:04:00Z"),
        ended("main", code=2, message=OUT_OF_MEMORY[0]),
        ended("done", code=0),
    )
    assert (found.outcome, found.exit_code) == (Outcome.OUT_OF_MEMORY, 2)
    assert found.message.startswith("main: torch.OutOfMemoryError")


def test_the_container_that_failed_first_decides():
    found = failed(
        ended("late", code=143), ended("early", code=3, finishedAt="2026-01-01T10:01:00Z")
    )
    assert (found.outcome, found.exit_code) == (Outcome.FAILED, 3)
    assert found.message == "early: Error, exit code 3"


def test_an_init_container_that_fails_ends_the_attempt():
    fetch = ended("fetch", code=4, reason="Error", message="no disk")
    main = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    found = failed(main, initContainerStatuses=[fetch])
    assert (found.outcome, found.exit_code, found.message) == (Outcome.FAILED, 4, "no disk")
    assert found.started_at == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert found.finished_at == datetime(2026, 1, 1, 10, 5, tzinfo=UTC)


def test_a_sidecar_stopped_at_the_end_does_not_decide():
    found = failed(ended(code=5), initContainerStatuses=[ended("logs", code=137)])
    assert found.exit_code == 5


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"reason": "Evicted", "message": "low on memory"}, Outcome.EVICTED),
        ({"reason": "Preempting"}, Outcome.EVICTED),
        ({"reason": "UnexpectedAdmissionError", "message": "Allocate failed"}, Outcome.EVICTED),
        ({"reason": "OutOfgpu.partita.dev/8a56a4bc"}, Outcome.EVICTED),
        ({"reason": "NodeLost"}, Outcome.NODE_LOST),
        ({"reason": "Terminated", "message": "imminent node shutdown"}, Outcome.NODE_LOST),
        ({"reason": "DeadlineExceeded"}, Outcome.DEADLINE_EXCEEDED),
        ({"reason": "AppArmor", "message": "Cannot enforce AppArmor"}, Outcome.FAILED),
        ({}, Outcome.FAILED),
    ],
)
def test_a_pod_that_kubernetes_ended_says_so(status, outcome):
    found = failed(**status)
    assert found.finished
    assert (found.outcome, found.exit_code) == (outcome, None)
    assert all(str(text) in found.message for text in status.values())
    assert found.message


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("PreemptionByScheduler", Outcome.EVICTED),
        ("EvictionByEvictionAPI", Outcome.EVICTED),
        ("DeletionByTaintManager", Outcome.EVICTED),
        ("TerminationByKubelet", Outcome.EVICTED),
        ("DeletionByPodGC", Outcome.NODE_LOST),
    ],
)
def test_a_disruption_is_not_the_program_s_failure(reason, outcome):
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}
    found = failed(ended(code=143), conditions=[condition])
    assert (found.outcome, found.message, found.exit_code) == (outcome, f"{reason}: m", 143)
    withdrawn = condition | {"status": "False"}
    assert failed(ended(code=1), conditions=[withdrawn]).outcome is Outcome.FAILED


def test_a_disruption_without_reason_is_an_eviction():
    found = failed(ended(), conditions=[{"type": "DisruptionTarget", "status": "True"}])
    assert (found.outcome, found.message) == (Outcome.EVICTED, "Disrupted")


def test_a_container_that_kubelet_lost_sight_of_means_the_node_was_lost():
    found = failed(ended(code=137, reason="ContainerStatusUnknown", startedAt=None))
    assert found.outcome is Outcome.NODE_LOST
    assert found.started_at is None


def test_an_end_before_the_start_is_taken_as_the_start():
    found = failed(ended(startedAt=END, finishedAt=START))
    assert found.started_at == found.finished_at


@pytest.mark.parametrize("time", [None, "", "soon", "0001-01-01T00:00:00Z", 5])
def test_a_time_that_is_none_is_left_out(time):
    found = failed(ended(startedAt=time, finishedAt=time))
    assert (found.started_at, found.finished_at) == (None, None)


def test_only_the_end_of_a_long_message_is_kept():
    found = failed(ended(message="a" * 5000 + "the end"))
    assert len(found.message) == MAX_MESSAGE
    assert found.message.endswith("the end")
    several = failed(ended(message="a" * 5000), ended("board"))
    assert several.message.startswith("main: ")


@pytest.mark.parametrize("status", [{}, {"phase": "Pending"}, {"phase": "Unknown"}])
def test_a_pod_that_has_said_nothing_is_not_over(status):
    assert read_outcome(status) == PodOutcome()


def test_a_pod_is_not_over_while_its_phase_says_it_runs():
    board = {"name": "board", "state": {"running": {"startedAt": END}}}
    found = read_outcome({"phase": "Running", "containerStatuses": [ended(), board]})
    assert (found.finished, found.outcome, found.running) == (False, None, True)
    assert found.started_at == datetime(2026, 1, 1, 10, tzinfo=UTC)


def test_last_words_do_not_command_a_terminal():
    said = "\x1b[2J\x1b]0;title\x07one\ttwo\r\nthree\x9b31m\x7f"
    assert failed(ended(message=said)).message == "[2J]0;titleone\ttwo\nthree31m"
