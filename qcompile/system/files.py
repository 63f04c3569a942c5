"""Writing files so that nothing is ever half written, and nothing is written over by mistake."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import FileWriteError

PathLike = str | os.PathLike[str]


def check_writable(path: PathLike, what: str = "The file", sources: Iterable[PathLike] = ()) -> Path:
    """The file that a path leads to, through links, if a new one may take its place.

    Args:
        path: where something is to be written.
        what: how messages call it.
        sources: files that are read, which it must not replace.

    Raises:
        FileWriteError: it is a folder, a device, a pipe or one of `sources`, or its folder is missing or not writable.
    """
    if "\0" in os.fspath(path):
        raise _not_written(what, path, "its name has a zero character")
    target = Path(os.path.realpath(path))
    problem = None
    if target.is_dir():
        problem = "it is a folder"
    elif target.exists() and not target.is_file():
        problem = "it is not a regular file"
    elif any(target == Path(os.path.realpath(source)) for source in sources):
        problem = "it is an input of the same command"
    elif not target.parent.is_dir():
        problem = f"there is no folder {target.parent}"
    elif not os.access(target.parent, os.W_OK):
        problem = f"the folder {target.parent} is not writable"
    if problem is not None:
        raise _not_written(what, path, problem)
    return target


def write_atomically(path: PathLike, content: bytes, what: str = "The file") -> None:
    """Writes `content` to a temporary file beside the file that `path` leads to, then renames it.

    Raises:
        FileWriteError: the place is not usable (see `check_writable`), or the disk is full; an older file is kept.
    """
    target = check_writable(path, what)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".qcompile.", suffix=".part", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, _permissions(target))
        os.replace(temporary, target)
    except OSError as error:
        raise _not_written(what, path, error.strerror or str(error)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _permissions(target: Path) -> int:
    """Those of the file that is replaced, else what the process gives new files."""
    with contextlib.suppress(OSError):
        return target.stat().st_mode & 0o777
    # there is no way to ask for the mask but to set it; /proc is safe while other threads run
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        mask = next(line.split()[1] for line in lines if line.startswith("Umask:"))
        return 0o666 & ~int(mask, 8)
    return 0o644


def _not_written(what: str, path: PathLike, problem: str) -> FileWriteError:
    return FileWriteError(
        f"{what} {os.fspath(path)} cannot be written: {problem}.",
        remedy="choose another path, in an existing, writable folder",
    )
