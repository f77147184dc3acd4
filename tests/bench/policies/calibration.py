"""Fits the constants of `partita_policies.interference` to the published MPS table.

The table (`data/mps-table.yaml`) gives the time of a cache-sensitive program beside a second one,
with MPS and without. The model says of two programs that always compute:

- with MPS, 1 + s1 s2 A W^b, with the sensitivities s1 = 1 and s2 (1 or s, fitted), and W, the
  memory of both in GiB. None of the two saturates the SMs, as the source says of these programs;
- without MPS, 2 o: half of the time each, and what switching costs.

So the ratio of the two times gives A, b, s and o. The table prints sizes of the input, not
memory: W is taken as two matrices of size x size single-precision numbers, one a program. That is
an assumption, and A and b depend on it.

The fit is of least squares of the logarithms of the ratios, by Gauss-Newton, so that a ratio of
one half and one of two err alike. With as many as four constants for eight ratios it shows how
well the form suits, not how well it would predict other programs.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

__all__ = ["Fit", "Row", "fit", "mps_table"]

_BYTES = 4
_START = (0.0, 0.0, 1.0, -2.0)
"""Logarithms of o and A, then b, then the logarithm of s."""
_STEPS = 50
_DELTA = 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """A pair of programs with an input of one size."""

    size: int
    sensitive: bool
    """Whether the second program is sensitive to the cache, too."""
    mps: float
    """Seconds with MPS, published."""
    without: float
    """Seconds without, published."""

    @property
    def ratio(self) -> float:
        """Time with MPS in terms of that without."""
        return self.mps / self.without

    @property
    def memory(self) -> float:
        """GiB of both programs, as assumed."""
        return 2 * self.size**2 * _BYTES / 2**30


@dataclass(frozen=True, slots=True)
class Fit:
    """The constants, and how far the model is off with them."""

    switch_overhead: float
    cache_strength: float
    cache_exponent: float
    insensitive: float
    """Sensitivity of the program that the source calls insensitive."""
    errors: tuple[tuple[Row, float], ...]
    """What the model says of each row's ratio against the published one: 0.05 is 5 % too much."""


@cache
def mps_table() -> tuple[Row, ...]:
    """Return the published table, row by row: first the sensitive pairs."""
    text = (files("partita_research") / "data" / "mps-table.yaml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = yaml.safe_load(text)["rows"]
    return tuple(
        Row(row["size"], kind == "sensitive", row[kind]["mps"], row[kind]["without"])
        for kind in ("sensitive", "insensitive")
        for row in rows
    )


def fit() -> Fit:
    """Fit the constants to the table."""
    rows = mps_table()
    memory = np.array([row.memory for row in rows])
    sensitive = np.array([row.sensitive for row in rows])
    published = np.log([row.ratio for row in rows])

    def misses(constants: NDArray[np.float64]) -> NDArray[np.float64]:
        overhead, strength, exponent, insensitive = constants
        partner = np.where(sensitive, 0.0, insensitive)
        slowdown = 1 + np.exp(strength + partner) * memory**exponent
        modelled: NDArray[np.float64] = np.log(slowdown) - np.log(2) - overhead - published
        return modelled

    constants = np.array(_START)
    for _ in range(_STEPS):
        now = misses(constants)
        slopes = np.stack(
            [(misses(constants + move) - now) / _DELTA for move in np.eye(4) * _DELTA], axis=1
        )
        constants = constants + np.linalg.lstsq(slopes, -now, rcond=None)[0]
    off = np.expm1(misses(constants))
    overhead, strength, exponent, insensitive = (float(value) for value in constants)
    return Fit(
        switch_overhead=float(np.exp(overhead)),
        cache_strength=float(np.exp(strength)),
        cache_exponent=exponent,
        insensitive=float(np.exp(insensitive)),
        errors=tuple(zip(rows, (float(value) for value in off), strict=True)),
    )
