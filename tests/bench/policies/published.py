"""What others have published of the trace openb, to set beside our own results."""

__all__ = ["ALLOCATED"]

_POLICIES = ("fgd", "best_fit", "dot_product", "random")
_SHARES = {
    "default": (95.39, 93.08, 90.85, 87.47),
    "cpu250": (93.41, 91.45, 83.81, 80.41),
    "gpushare100": (86.9, 85.01, 82.42, 79.44),
    "gpushare40": (94.15, 91.69, 89.56, 86.0),
    "gpushare60": (91.4, 89.36, 87.11, 83.65),
    "gpushare80": (89.31, 87.01, 84.49, 81.22),
    "gpuspec33": (94.55, 93.09, 89.14, 86.46),
    "multigpu20": (95.65, 93.93, 92.06, 88.69),
    "multigpu50": (97.18, 95.74, 94.85, 90.28),
}
ALLOCATED = {trace: dict(zip(_POLICIES, shares, strict=True)) for trace, shares in _SHARES.items()}
"""Percent that the FGD paper's simulator allocates once 130 % of the GPUs are asked for, by trace.

Means over its ten seeds of column 130 of `experiments/analysis/expected_results/
analysis_allo_discrete.csv` in hkust-adsl/kubernetes-scheduler-simulator, commit 8f3d641, the
figures behind the plots of allocation in section 6 of the paper.
"""
