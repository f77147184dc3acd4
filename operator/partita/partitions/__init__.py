"""GPUPartitions: their GPUServers and server Pods, maintenance, and status."""
