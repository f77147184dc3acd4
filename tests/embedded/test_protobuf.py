import base64

import pytest

from partita.embedded.errors import APIError
from partita.embedded.protobuf import decode


def number(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def text(field: int, value: bytes) -> bytes:
    return number(field << 3 | 2) + number(len(value)) + value


def body(kind: str, raw: bytes) -> bytes:
    type_meta = text(1, b"v1") + text(2, kind.encode())
    return b"k8s\0" + text(1, type_meta) + text(2, raw) + text(3, b"") + text(4, b"")


def entry(key: str, value: bytes) -> bytes:
    return text(1, key.encode()) + text(2, value)


META = text(1, text(1, b"name") + text(2, b"") + text(3, b"space") + text(8, b""))


def test_reads_a_namespace():
    labelled = text(1, text(1, b"name") + text(11, entry("k", b"v" * 200)))
    assert decode(body("Namespace", labelled + text(2, b"") + text(3, b""))) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "name", "labels": {"k": "v" * 200}},
    }


def test_reads_what_maps_hold():
    read = decode(body("ConfigMap", META + text(2, entry("k", b"v")) + text(3, entry("b", b"\1"))))
    assert read["metadata"] == {"name": "name", "namespace": "space"}
    assert (read["data"], read["binaryData"]) == ({"k": "v"}, {"b": "AQ=="})
    secret = decode(body("Secret", META + text(2, entry("k", b"v")) + text(3, b"Opaque")))
    assert secret["data"] == {"k": base64.b64encode(b"v").decode()}
    assert secret["type"] == "Opaque"
    assert decode(body("ServiceAccount", META))["kind"] == "ServiceAccount"


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"k8s\0",
        b"\xff\xff",
        body("Pod", META),
        body("ConfigMap", META + number(4 << 3) + number(1)),
        body("ConfigMap", META + number(2 << 3 | 5) + b"1234"),
    ],
)
def test_what_it_cannot_read_whole_it_does_not_read(wrong):
    with pytest.raises(APIError) as refusal:
        decode(wrong)
    assert refusal.value.code == 415
