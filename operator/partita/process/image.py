"""The container image of the operator."""

from typing import Final

from partita.kube.client import PODS, Kube
from partita.kube.errors import NotFoundError

__all__ = ["own_image"]

_CONTAINER: Final = "operator"
"""Name of the container in manifests/base; a service mesh may inject others."""
_DEFAULT: Final = "partita:latest"


async def own_image(kube: Kube, namespace: str, pod: str) -> str:
    """Return the image of the operator's Pod, which the server Pods use too.

    So an overlay sets the image once, and a rollback changes both.
    """
    if pod:
        try:
            body = await kube.get(PODS, pod, namespace)
        except NotFoundError:
            return _DEFAULT  # the operator runs outside of the cluster
        for container in body["spec"]["containers"]:
            if container["name"] == _CONTAINER:
                return str(container["image"])
    return _DEFAULT
