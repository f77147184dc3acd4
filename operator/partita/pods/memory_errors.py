"""Error messages of programs that ran out of GPU memory or failed to use MPS.

Only text that names the GPU counts: `MemoryError`, `std::bad_alloc`, TensorFlow's allocator `cpu`
and gRPC's own RESOURCE_EXHAUSTED have other causes.
"""

import re
from typing import Final

__all__ = [
    "RAPIDS",
    "TRITON",
    "VLLM",
    "VLLM_ENGINE",
    "VLLM_PROFILING",
    "XLA",
    "is_gpu_out_of_memory",
    "is_mps_client_terminated",
    "names_cuda_error",
    "names_mps_error",
    "over_budget",
    "refused_memory",
]

_PATTERNS: Final = (
    # CUDA's driver API; Numba, TensorFlow and JAX print this name.
    # https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html, CUDA_ERROR_OUT_OF_MEMORY
    r"CUDA_ERROR_OUT_OF_MEMORY",
    # CUDA's runtime API; CuPy and RMM print this name.
    # https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
    r"cudaErrorMemoryAllocation",
    # cudaGetErrorString returns "out of memory", which most programs print after the word CUDA:
    # PyTorch `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...`
    # (c10/cuda/CUDACachingAllocator.cpp), also under its old name torch.cuda.OutOfMemoryError;
    # `CUDA error: out of memory`; TensorRT `Cuda Runtime (out of memory)`; llama.cpp `cudaMalloc
    # failed: out of memory`; NCCL `Cuda failure 2 'out of memory'`
    # (https://github.com/NVIDIA/TensorRT-LLM/issues/1670).
    r"(?i:cuda)[^\n]{0,120}(?i:out of memory)",
    # TensorFlow: `OOM when allocating tensor with shape[...] and type float on
    # /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc`
    # (https://github.com/tensorflow/tensorflow/issues/136).
    r"OOM when allocating tensor[^\n]*(?i:device:GPU|allocator GPU)",
    # An earlier warning of the same allocator: `Allocator (GPU_0_bfc) ran out of memory trying ...`
    # (xla/tsl/framework/bfc_allocator.cc).
    r"Allocator \(GPU_\d+_bfc\) ran out of memory trying to allocate(?![^\n]*not a failure)",
    # XLA through JAX: `XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to
    # allocate N bytes` (https://github.com/google-deepmind/alphafold/issues/1023), and
    # `RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal
    # 0` (https://github.com/ecmwf-lab/ai-models-graphcast/issues/18).
    r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate request)",
    # CuPy above CUPY_GPU_MEMORY_LIMIT: `cupy.cuda.memory.OutOfMemoryError: Out of memory allocating
    # N bytes (allocated so far: ...)` (cupy/cuda/memory.pyx).
    r"cupy\.cuda\.memory\.OutOfMemoryError",
    # RMM (cuDF, cuML): `std::bad_alloc: out_of_memory: RMM failure at: ...`
    # (https://github.com/rapidsai/rmm, include/rmm/detail/error.hpp).
    r"out_of_memory: (?:CUDA error|RMM failure)",
    # Failed allocations of cuBLAS and similar libraries, "usually caused by a cudaMalloc()
    # failure":
    # https://docs.nvidia.com/cuda/cublas/#cublasstatus-t.
    r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED",
    # NCCL, on the line after its CUDA error: `NCCL WARN Failed to CUDA calloc 6291456 bytes`
    # (https://github.com/NVIDIA/nccl/issues/1235).
    r"NCCL WARN Failed to CUDA (?:calloc|malloc)",
    # ONNX Runtime's GPU arena: `Failed to allocate memory for requested buffer of size N`. Its CPU
    # arena prints the same text, so the CUDA provider must be named before it
    # (onnxruntime/core/framework/bfc_arena.cc).
    r"(?i:CUDAExecutionProvider)[\s\S]*Failed to allocate memory for requested",
    # SGLang, if the weights leave no room in its fraction of the memory that was free at its start:
    # `RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.`
    # (python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py).
    r"Not enough memory\. Please try to increase --mem-fraction-static",
    # TGI's first prefill: `Not enough memory to handle 4096 prefill tokens. You need to decrease
    # `--max-batch-prefill-tokens``
    # (server/text_generation_server/models/flash_causal_lm.py).
    r"Not enough memory to handle \d+ prefill tokens",
)

_GPU_OUT_OF_MEMORY: Final = re.compile("|".join(_PATTERNS))


VLLM: Final = "vLLM"
VLLM_ENGINE: Final = "vLLM's engine"
VLLM_PROFILING: Final = "vLLM's memory profiling"
XLA: Final = "TensorFlow or JAX"
RAPIDS: Final = "RAPIDS"
TRITON: Final = "Triton"
_OVER_BUDGET: Final = {
    VLLM: re.compile(
        # `ValueError: Free memory on device cuda:0 (9.5/79.1 GiB) on startup is less than desired
        # GPU memory utilization (0.9, 71.19 GiB).` (vllm/v1/worker/utils.py, request_memory;
        # https://github.com/vllm-project/vllm/issues/20305).
        r"less than desired\s+GPU memory utilization"
        # `ValueError: No available memory for the cache blocks.`
        # (https://github.com/vllm-project/vllm/issues/2248) and `10.00 GiB KV cache is needed,
        # which is larger than the available KV cache memory (1.25 GiB)`: the fraction leaves too
        # little beside the model (vllm/v1/core/kv_cache_utils.py). Before version 1 of its engine:
        # `The model's max seq len (131072) is larger than the maximum number of tokens that can be
        # stored in KV cache (86432).` (https://github.com/vllm-project/vllm/issues/8933).
        r"|No available memory for the cache blocks"
        r"|KV\s+cache is needed, which is larger than the available KV\s+cache"
        r"|maximum number of tokens that can be stored in KV\s+cache"
    ),
    # `AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory
    # 90.17 GiB.` (https://github.com/vllm-project/vllm/issues/56830).
    VLLM_PROFILING: re.compile(r"Error in memory profiling\. Initial free memory"),
    # The process that starts the engine prints it after the engine's own error, which Kubernetes
    # may have cut off (vllm/v1/engine/utils.py, wait_for_engine_startup). It has other causes too.
    VLLM_ENGINE: re.compile(r"Engine core initialization failed\. See root cause above"),
    # `failed to allocate 6.45G (6929413888 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY`
    # (tensorflow/stream_executor/cuda/cuda_driver.cc). That newer versions put a status before the
    # error's name is an assumption.
    XLA: re.compile(r"(?i:failed to allocate) [^\n]* from device: [^\n]*CUDA_ERROR_OUT_OF_MEMORY"),
    # `RMM failure at: .../pool_memory_resource.hpp:276: Maximum pool size exceeded`
    # (include/rmm/mr/device/pool_memory_resource.hpp).
    RAPIDS: re.compile(r"RMM failure at:[^\n]*Maximum pool size exceeded"),
    # `Failed to finalize CUDA memory manager: CNMEM_STATUS_OUT_OF_MEMORY`: it has no room for its
    # pool, runs on without one, and a model may then fail
    # (triton-inference-server/core, src/cuda_memory_manager.cc, CudaMemoryManager::Create).
    TRITON: re.compile(
        r"Failed to finalize CUDA memory manager: CNMEM_STATUS_(?:OUT_OF_MEMORY|CUDA_ERROR)"
    ),
}
"""By what takes its memory at its start, in the order in which they are looked for."""

_MPS_CLIENT_TERMINATED: Final = re.compile(
    # Error 810, "the MPS client has been terminated by the server": the name in the runtime and in
    # the driver API, and the text of cudaGetErrorString.
    # https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
    r"cudaErrorMpsClientTerminated|CUDA_ERROR_MPS_CLIENT_TERMINATED"
    r"|MPS client has been terminated by the server"
)
_MPS_REFUSED: Final = re.compile(
    # Errors 805 to 809: the names in the runtime and in the driver API, and the text of
    # cudaGetErrorString. PyTorch prints the text after `CUDA error:`, TensorFlow and JAX print the
    # driver's name. Source as above.
    r"cudaErrorMps(?:ConnectionFailed|RpcFailure|ServerNotReady|MaxClientsReached"
    r"|MaxConnectionsReached)"
    r"|CUDA_ERROR_MPS_(?:CONNECTION_FAILED|RPC_FAILURE|SERVER_NOT_READY|MAX_CLIENTS_REACHED"
    r"|MAX_CONNECTIONS_REACHED)"
    r"|MPS client failed to connect to the MPS control daemon"
    r"|remote procedural call between the MPS server and the MPS client failed"
    r"|MPS server is not ready to accept new MPS client requests"
    r"|hardware resources required to (?:create MPS client|support device connections) have been"
)
_REFUSED_MEMORY: Final = re.compile(
    # The requested amount: PyTorch `Tried to allocate 2.00 GiB`, TensorFlow and XLA `trying to
    # allocate 2.00GiB` and `N bytes`, XLA `Failed to allocate request for 2.99GiB`, CuPy `Out of
    # memory allocating 8,000 bytes`, NCCL `Failed to CUDA calloc N bytes`, ONNX Runtime `requested
    # buffer of size N`, llama.cpp `allocating 512.00 MiB on device 0`. Sources as above.
    r"(?:[Tt]r(?:ied|ying) to allocate|Failed to allocate request for|allocating"
    r"|Failed to CUDA [cm]alloc|requested buffer of size) (\d[\d,]*(?:\.\d+)?) ?([KMGT]iB)?"
)
_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_CUDA_ERROR: Final = re.compile(
    # `CUDA error: ...` (PyTorch and NVIDIA's samples), CUDA_ERROR_..., cudaError...
    r"(?i:cuda[ _]?error)|CUDA (?:Runtime|driver) [Ee]rror|Cuda failure"
)


def is_mps_client_terminated(text: str) -> bool:
    """Return whether a failed program's last output reports that MPS terminated its GPU work.

    The agent makes MPS terminate a program that uses more memory than it may. MPS itself terminates
    a program above its guarantee when another needs the memory
    (https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "MPS Pressure Handling and
    Eviction"). If an MPS server fails, all its clients fail in the same way.
    """
    return _MPS_CLIENT_TERMINATED.search(text) is not None


def names_mps_error(text: str) -> bool:
    """Return whether a failed program's last output names one of CUDA's MPS errors, 805 to 810."""
    return _MPS_REFUSED.search(text) is not None or is_mps_client_terminated(text)


def refused_memory(text: str) -> int:
    """Return the largest failed memory allocation that a program reports; bytes, 0 if unknown."""
    found = _REFUSED_MEMORY.findall(text)
    amounts = (float(n.replace(",", "")) * _UNITS[unit] for n, unit in found)
    return int(max(amounts, default=0))


def over_budget(text: str) -> str:
    """Return what did not start because it asked for more memory than it may use; else empty.

    More memory does not help a framework that asks for a fraction of the whole GPU.
    """
    found = (name for name, pattern in _OVER_BUDGET.items() if pattern.search(text))
    return next(found, "")


def names_cuda_error(text: str) -> bool:
    """Return whether a failed program's last output names any CUDA error.

    A fatal fault of one MPS client also causes such errors in co-located jobs: "Error
    Containment", https://docs.nvidia.com/deploy/mps/.
    """
    return _CUDA_ERROR.search(text) is not None


def is_gpu_out_of_memory(text: str) -> bool:
    """Return whether a failed program's last output reports that it ran out of GPU memory."""
    return _GPU_OUT_OF_MEMORY.search(text) is not None
