"""The agent on a GPU's node: reads the GPU, serves it to kubelet, watches MPS, reports.

It runs in the server Pod (`partita.pods.server_pod`) as `partita agent`; `partita agent mps` wraps
the MPS control daemon in the Pod's other container.
"""
