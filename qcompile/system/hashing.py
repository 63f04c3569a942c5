"""Keys of contents."""

from __future__ import annotations

import hashlib


def digest(*parts: object) -> str:
    """A key of the text forms of the parts; their order and boundaries matter."""
    state = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(content).to_bytes(8, "little"))
        state.update(content)
    return state.hexdigest()
