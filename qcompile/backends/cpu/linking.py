"""Objects, constants and a table of the kernels -> one shared library that needs nothing but libc."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from ...system.toolchain import compiled, run_compiler
from ..interface import MAXIMUM_THREADS, KernelTable
from .struct_layout import MAXIMUM_ARGUMENTS, table_text

NATIVE = Path(__file__).resolve().parent / "native"
_SOURCES = ("constants", "services", "library")
_COMPILE_FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-g0", "-c",
    f"-DQC_MAXIMUM_ARGUMENTS={MAXIMUM_ARGUMENTS}", f"-DQC_MAXIMUM_THREADS={MAXIMUM_THREADS}",
)  # fmt: skip
_LINK_FLAGS = ("-shared", "-s", "-Wl,--build-id=none", "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,-z,relro")


def link(kernels: KernelTable, objects: Mapping[str, bytes]) -> bytes:
    """The shared library of these kernels. Equal input gives equal bytes.

    Args:
        kernels: rows of the table.
        objects: symbol -> object file; several kernels may share one.

    Raises:
        ToolchainError: there is no C compiler, or it fails.
        LoweringError: a kernel has more tensors than a library can pass on.
    """
    table, constants = table_text(kernels)
    with tempfile.TemporaryDirectory(prefix="qcompile-") as name:
        folder = Path(name)
        (folder / "table.s").write_text(table, encoding="utf-8")
        (folder / "constants.bin").write_bytes(constants)
        names = ["table.s"]
        for source in _SOURCES:
            (folder / f"{source}.o").write_bytes(_native_object(source))
            names.append(f"{source}.o")
        for position, symbol in enumerate(sorted(objects)):
            (folder / f"kernel{position}.o").write_bytes(objects[symbol])
            names.append(f"kernel{position}.o")
        script = f"-Wl,--version-script={NATIVE / 'exports.map'}"
        run_compiler([*_LINK_FLAGS, script, "-o", "library.so", *names, "-lpthread", "-lm"], folder, "link the kernels")
        return (folder / "library.so").read_bytes()


def _native_object(source: str) -> bytes:
    headers = sorted(NATIVE.glob("*.h"))
    return compiled(NATIVE / f"{source}.c", _COMPILE_FLAGS, f"compile {source}.c", headers=headers)
