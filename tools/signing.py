"""Sign files with a local key, as `cosign sign-blob` does.

A bundle is written beside each file (https://docs.sigstore.dev/about/bundle/). It has the signature
of the file's SHA-256 and names the key. OpenSSL signs, and asks for the password of the key if it
has one.
"""

import hashlib
import json
import subprocess
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

__all__ = ["BUNDLE", "sign"]

BUNDLE = ".sigstore.json"
"""What a bundle's name has in addition to that of its file."""


def sign(files: Iterable[Path], key: Path, public: Path) -> None:
    """Write a bundle beside each file, and the public key.

    Parameters
    ----------
    key
        A private key in PEM, of ECDSA on the curve P-256.
    """
    public.write_bytes(_openssl("pkey", "-in", key, "-pubout"))
    named = _digest(_openssl("pkey", "-in", key, "-pubout", "-outform", "DER"))
    for file in files:
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": named}},
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": _digest(file.read_bytes())},
                "signature": _text(_openssl("dgst", "-sha256", "-sign", key, file)),
            },
        }
        text = json.dumps(bundle, indent=1) + "\n"
        file.with_name(file.name + BUNDLE).write_text(text, encoding="utf-8")


def _digest(content: bytes) -> str:
    return _text(hashlib.sha256(content).digest())


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def _openssl(*arguments: str | Path) -> bytes:
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603
