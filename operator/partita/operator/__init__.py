"""The operator process: leadership, control loop, probes, metrics, recordings."""
