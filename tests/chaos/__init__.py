"""Everything goes wrong at random, on a real API server; then the whole history is judged.

`plan` says what happens (by its seed), `faults` makes it happen, `verdict` judges what was
recorded; `python -m chaos` wires them. See `docs/chaos.md`.
"""
