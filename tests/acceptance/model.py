"""`partita_policies.interference` where pydantic, which only its package needs, may be missing.

The model is plain arithmetic. Its package checks policies' parameters with pydantic, which a GPU
machine has no reason to have: then the package is left out, and for the declarations in its types
there is a pydantic that declares nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

__all__ = ["predicted"]


def _prepare() -> None:
    if "partita_policies" in sys.modules or importlib.util.find_spec("pydantic") is not None:
        return
    found = importlib.util.find_spec("partita_policies")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = ModuleType("partita_policies")
    package.__path__ = list(found.submodule_search_locations)
    declarations: Any = ModuleType("pydantic")
    declarations.BaseModel = type("BaseModel", (), {})
    declarations.ConfigDict = dict
    declarations.Field = declarations.PlainSerializer = lambda *_, **__: None
    sys.modules.update({"partita_policies": package, "pydantic": declarations})


def predicted(uses: list[dict[str, float]], pcie_bandwidth: int, *, mps: bool) -> list[float]:
    """Predict how much longer each of the programs takes beside the others than alone.

    Parameters
    ----------
    uses
        What each uses alone: `gpu` and `core` in percent, `memory` in bytes, `pcie` in bytes per
        second.
    """
    _prepare()
    from partita_policies.interference import load_of, slowdowns
    from partita_policies.types import GPU, Sharing, Step

    gpu = GPU("gpu", "node", 0, len(uses), pcie_bandwidth=pcie_bandwidth)
    steps = [Step(u["gpu"], int(u["memory"]), u["core"], u["pcie"]) for u in uses]
    sharing = Sharing.MPS if mps else Sharing.TIME_SLICING
    return slowdowns([load_of(step, gpu) for step in steps], sharing)
