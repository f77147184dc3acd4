"""The GPU itself: NVML, the CUDA driver, discovery, set-up and health."""
