"""Removes fields from an object that may contain a secret. Pure functions."""

from typing import Any, Final

__all__ = ["redacted"]

_LEFT_OUT: Final = "left out"
_OURS: Final = ("NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_", "PARTITA_")
"""Variables that Partita sets itself; their values are not secret and are useful for support."""
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def redacted(value: Any) -> Any:
    """Return a copy of a Kubernetes object without the fields that can contain secrets.

    These are the values of variables, the commands and the arguments of every container, the
    probes and hooks, and kubectl's copy of the whole object. `managedFields` is removed because it
    is long.
    """
    if isinstance(value, list):
        return [redacted(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        if key == "managedFields":
            continue
        if key == "annotations" and isinstance(inner, dict):
            kept[key] = {name: text for name, text in inner.items() if name != _APPLIED}
        elif key in _CONTAINERS and isinstance(inner, list):
            kept[key] = [_container(item) for item in inner]
        else:
            kept[key] = redacted(inner)
    return kept


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    kept = {key: redacted(value) for key, value in container.items()}
    for key in ("command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if key in kept:
            kept[key] = _LEFT_OUT
    if isinstance(container.get("env"), list):
        kept["env"] = [_variable(variable) for variable in container["env"]]
    return kept


def _variable(variable: Any) -> Any:
    if not isinstance(variable, dict) or str(variable.get("name", "")).startswith(_OURS):
        return variable
    return {key: _LEFT_OUT if key == "value" else inner for key, inner in variable.items()}
