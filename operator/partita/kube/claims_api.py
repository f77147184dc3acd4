"""Whether the API server serves what the Pods of jobs get their GPUs by."""

from partita.kube.client import DEVICE_CLASSES, Kube
from partita.kube.errors import NotFoundError

__all__ = ["unserved"]


async def unserved(kube: Kube) -> str:
    """Return why no job could get a GPU in this cluster; empty if that is possible.

    Raises
    ------
    KubernetesError
        If that cannot be read.
    """
    try:
        await kube.list(DEVICE_CLASSES)
    except NotFoundError:
        return (
            "the API server does not serve resource.k8s.io/v1, and jobs get their GPUs by "
            "ResourceClaims: upgrade Kubernetes to 1.34 or newer (docs/how-to/install.md)"
        )
    return ""
