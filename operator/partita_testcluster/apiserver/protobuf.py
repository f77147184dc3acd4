"""The protobuf body of `kubectl create namespace`. All other requests of kubectl are JSON.

Field numbers are from ``generated.proto`` in k8s.io/api/core/v1 and k8s.io/apimachinery.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from partita_testcluster.apiserver.errors import APIError

__all__ = ["decode"]

_MAGIC = b"k8s\0"


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message: texts and messages below 128 bytes, and zeros.

    Raises
    ------
    ValueError
        If a field has another form.
    """
    at = 0
    while at < len(data):
        (number, wire), size = divmod(data[at], 8), data[at + 1]
        if size > 127 or wire not in (0, 2) or (wire == 0 and size):
            raise ValueError(f"wire type {wire}, size {size}")
        at += 2 + size
        yield number, data[at - size : at]


def decode(body: bytes) -> dict[str, Any]:
    """Return the object in a body of type ``application/vnd.kubernetes.protobuf``.

    Raises
    ------
    APIError
        415 if the body is not a Namespace with only a name.
    """
    try:
        envelope = dict(_fields(body.removeprefix(_MAGIC)))
        kind = dict(_fields(envelope[1]))[2].decode()
        meta = dict(_fields(dict(_fields(envelope[2]))[1]))
        if kind == "Namespace" and not any(meta[n] for n in meta if n != 1):
            return {"kind": kind, "metadata": {"name": meta[1].decode()}}
        why = f"a {kind} of more"
    except (KeyError, ValueError, IndexError) as e:
        why = repr(e)
    message = f"of protobuf this server reads only a Namespace's name ({why}): send JSON"
    raise APIError(415, "UnsupportedMediaType", message)
