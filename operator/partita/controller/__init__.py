"""The operator process: kopf's handlers, the partitions' GPUs, and how all is wired."""
