"""The client of the Kubernetes API, for all requests except those of kopf."""
