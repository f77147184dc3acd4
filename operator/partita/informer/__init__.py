"""The operator's view of the cluster: list and watch, and the relevant objects in memory."""
