"""Fake GPUs: NVML, MPS, a driver and CUDA programs without hardware. Never in the wheel."""
