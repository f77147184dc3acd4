"""A cluster without machines, for demo and tests: an API server and simulated GPU nodes."""
