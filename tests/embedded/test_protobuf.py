import pytest

from partita_testcluster.apiserver.errors import APIError
from partita_testcluster.apiserver.protobuf import decode


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


META = text(1, text(1, b"name") + text(2, b"") + number(7 << 3) + number(0) + text(8, b""))


def test_reads_a_namespace():
    read = decode(body("Namespace", META + text(2, b"") + text(3, b"")))
    assert read == {"kind": "Namespace", "metadata": {"name": "name"}}


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"k8s\0",
        b"\xff\xff",
        body("Pod", META),
        body("Namespace", text(1, text(1, b"name") + text(11, b"label"))),
        body("Namespace", text(1, text(1, b"n" * 200))),
        body("Namespace", META + number(2 << 3 | 5) + b"1234"),
    ],
)
def test_what_it_cannot_read_whole_it_does_not_read(wrong):
    with pytest.raises(APIError) as refusal:
        decode(wrong)
    assert refusal.value.code == 415
