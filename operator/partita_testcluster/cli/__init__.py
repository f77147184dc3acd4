"""Commands that run a cluster without machines."""
