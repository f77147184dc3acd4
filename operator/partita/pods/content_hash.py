"""A hash that tells contents apart, for names and annotations."""

import hashlib
import json

__all__ = ["content_hash"]


def content_hash(content: object) -> str:
    """Return eight hexadecimal digits that depend on the content, but not on the order of keys.

    Parameters
    ----------
    content
        Anything that JSON can express.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
