"""The protobuf bodies that kubectl sends: those of `kubectl create namespace` and its like.

kubectl's typed commands encode what they create in protobuf; all else it sends is JSON. Field
numbers are those of ``generated.proto`` in k8s.io/api/core/v1 and k8s.io/apimachinery; a field
not listed here makes the body unsupported rather than half read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from partita.embedded.errors import APIError

__all__ = ["decode"]

_MAGIC = b"k8s\0"
_Reader = Callable[[bytes, dict[str, Any], str], None]


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
        elif wire == 2:
            size = varint()
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire}")


def _text(data: bytes, out: dict[str, Any], name: str) -> None:
    if data:
        out[name] = data.decode()


def _skip(_data: bytes, _out: dict[str, Any], _name: str) -> None:
    """Leave out what the server sets anyway."""


def _entry(data: bytes, out: dict[str, Any], name: str) -> None:
    parts = dict(_fields(data))
    out.setdefault(name, {})[bytes(parts.get(1, b"")).decode()] = bytes(parts.get(2, b"")).decode()


def _bytes_entry(data: bytes, out: dict[str, Any], name: str) -> None:
    parts = dict(_fields(data))
    value = base64.b64encode(bytes(parts.get(2, b""))).decode()
    out.setdefault(name, {})[bytes(parts.get(1, b"")).decode()] = value


def _meta(data: bytes, out: dict[str, Any], name: str) -> None:
    out[name] = _message(data, _META)


_META: dict[int, tuple[str, _Reader]] = {
    1: ("name", _text), 2: ("generateName", _text), 3: ("namespace", _text),
    4: ("selfLink", _skip), 5: ("uid", _skip), 6: ("resourceVersion", _text),
    7: ("generation", _skip), 8: ("creationTimestamp", _skip),
    11: ("labels", _entry), 12: ("annotations", _entry),
}  # fmt: skip
_KINDS: dict[str, dict[int, tuple[str, _Reader]]] = {
    "Namespace": {1: ("metadata", _meta), 2: ("spec", _skip), 3: ("status", _skip)},
    "ConfigMap": {1: ("metadata", _meta), 2: ("data", _entry), 3: ("binaryData", _bytes_entry)},
    "Secret": {1: ("metadata", _meta), 2: ("data", _bytes_entry), 3: ("type", _text),
               4: ("stringData", _entry)},
    "ServiceAccount": {1: ("metadata", _meta)},
}  # fmt: skip


def _message(data: bytes, known: dict[int, tuple[str, _Reader]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for number, value in _fields(data):
        name, read = known[number]
        read(value if isinstance(value, bytes) else b"", out, name)
    return out


def decode(body: bytes) -> dict[str, Any]:
    """Return the object that a body of type ``application/vnd.kubernetes.protobuf`` holds.

    Raises
    ------
    APIError
        415 for kinds and fields not known here.
    """
    try:
        envelope = dict(_fields(body.removeprefix(_MAGIC)))
        kind = dict(_fields(bytes(envelope[1])))
        api_version, name = (bytes(kind[n]).decode() for n in (1, 2))
        return {"apiVersion": api_version, "kind": name} | _message(
            bytes(envelope[2]), _KINDS[name]
        )
    except (KeyError, ValueError, IndexError, TypeError) as e:
        raise APIError(415, "UnsupportedMediaType", (
            f"of protobuf this server reads only {', '.join(_KINDS)}, and of these the common "
            f"fields ({e!r}): send JSON")) from e  # fmt: skip
