"""Writing files so that nothing is ever half written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from .errors import BundleError


def write_atomically(path: str | os.PathLike[str], content: bytes, what: str = "The file") -> None:
    """Writes `content` to a temporary file beside `path`, then renames it.

    Raises:
        BundleError: the folder is missing or not writable, or the disk is full; an older file stays as it was.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise BundleError(
            f"{what} {target} cannot be written: {error.strerror or error}.",
            remedy="choose a path in an existing, writable folder",
        ) from error
