"""The client of the Kubernetes API, for all requests except those of kopf."""

from partita.import_trim import without_certificates

# aiohttp creates two TLS contexts when it is imported. Each client passes its own instead.
with without_certificates():
    import aiohttp  # noqa: F401
