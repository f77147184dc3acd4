"""The only client of the Kubernetes API: every read that is no watch, and every write."""
