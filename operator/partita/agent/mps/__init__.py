"""The MPS control daemon of a GPU: its protocols, health, canary, and the ends of its clients."""
