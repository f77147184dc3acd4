"""The operator's process: start, loop, cycles of partitions, metrics and probes."""
