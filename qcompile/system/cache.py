"""A cache of compiled kernels on disk, addressed by the content of everything that determines them.

The folder is `QCOMPILE_CACHE`, else `$XDG_CACHE_HOME/qcompile`, else `~/.cache/qcompile`; "off" disables it. An entry
carries its checksum: a damaged one counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from ..errors import CacheWarning, FileWriteError
from .files import write_atomically

_CHECKSUM_BYTES = 32


def folder() -> Path | None:
    """The cache's folder, or None where it is disabled."""
    chosen = os.environ.get("QCOMPILE_CACHE", "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "qcompile"


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """The entry of `key`; made, and stored, where it is missing. A cache that cannot be written is a warning."""
    root = folder()
    if root is None:
        return make()
    path = root / key[:2] / key[2:]
    content = _read(path, key)
    if content is None:
        content = make()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, _checksum(key, content) + content, "The cache entry")
        except (OSError, FileWriteError) as error:
            problem = error.problem if isinstance(error, FileWriteError) else f"{error}."
            _warn_once(
                f"The cache of compiled kernels is not used: {problem} Set QCOMPILE_CACHE to a writable folder, or to "
                "'off'."
            )
    return content


_warned: set[Path | None] = set()


def _warn_once(text: str) -> None:
    """Warns once for each folder: a compile asks for many entries."""
    if folder() not in _warned:
        _warned.add(folder())
        warnings.warn(text, CacheWarning, stacklevel=2)


def _checksum(key: str, content: bytes) -> bytes:
    """Covers the key too, so that no entry can stand in another's place."""
    return hashlib.sha256(key.encode() + content).digest()


def _read(path: Path, key: str) -> bytes | None:
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    content = stored[_CHECKSUM_BYTES:]
    return content if _checksum(key, content) == stored[:_CHECKSUM_BYTES] else None
