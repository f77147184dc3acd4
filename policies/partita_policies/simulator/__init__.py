"""Simulates jobs on shared GPUs: the futures of a live partition, and experiments with policies."""
