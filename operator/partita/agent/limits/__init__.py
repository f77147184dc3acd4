"""Limits of jobs: what the driver applies to containers, and what the agent enforces itself."""
