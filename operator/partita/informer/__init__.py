"""The operator's view of the cluster: list and watch, and what matters of it in memory."""
