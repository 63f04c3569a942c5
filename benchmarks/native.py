"""Compiles the C sources of the benchmarks into shared libraries, once for each content of a source."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from qcompile.system.cache import cached
from qcompile.system.hashing import digest
from qcompile.system.toolchain import c_compiler, run_compiler

SOURCES = Path(__file__).resolve().parent


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that lives as long as the process."""
    return tempfile.TemporaryDirectory(prefix="qcompile-benchmarks-")


def shared_library(source: str, folder: Path | None = None) -> Path:
    """Path of the library made from `source`, a file beside this one.

    Args:
        source: name of the file.
        folder: where to put the library; default: a folder that is removed when the process ends.

    Raises:
        qcompile.ToolchainError: there is no C compiler, or it fails.
    """
    text = (SOURCES / source).read_bytes()
    content = cached(digest("benchmarks", text, c_compiler()), lambda: _compile(source))
    path = (folder or Path(_folder().name)) / f"{Path(source).stem}.so"
    path.write_bytes(content)
    return path


def _compile(source: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        run_compiler(
            ["-O2", "-Wall", "-shared", "-fPIC", "-o", "library.so", str(SOURCES / source)],
            Path(folder),
            f"compile benchmarks/{source}",
        )
        return (Path(folder) / "library.so").read_bytes()
