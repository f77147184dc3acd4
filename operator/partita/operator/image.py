"""Which image the operator itself runs from."""

from typing import Final

from partita.kube.client import PODS, Kube
from partita.kube.errors import NotFoundError

__all__ = ["own_image"]

_CONTAINER: Final = "operator"
"""Our container in manifests/base; others may stand beside it, put there by a mesh."""
_ELSEWHERE: Final = "partita:latest"


async def own_image(kube: Kube, namespace: str, pod: str) -> str:
    """Return the image of our own Pod: the server Pods run the same release.

    So an overlay names the image once, and a rollback takes both back.
    """
    if pod:
        try:
            body = await kube.get(PODS, pod, namespace)
        except NotFoundError:
            return _ELSEWHERE  # we run outside of the cluster
        for container in body["spec"]["containers"]:
            if container["name"] == _CONTAINER:
                return str(container["image"])
    return _ELSEWHERE
