"""The agent on a GPU's node: samples the GPU, offers it to kubelet, monitors MPS, reports status.

It runs in the server Pod (`partita.pods.server_pod`) as `partita agent`; `partita agent mps` wraps
the MPS control daemon in the Pod's other container.
"""
