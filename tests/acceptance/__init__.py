"""Acceptance on a real NVIDIA GPU: `make test-gpu`, or `python3 -m acceptance`.

It needs Python 3.11, pynvml and torch, and of Partita only what these suffice for. It changes no
setting of the GPU and leaves nothing behind. Without a GPU it says what is missing and fails.
"""
