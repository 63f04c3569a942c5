"""Objects, constants and a table of the kernels -> one shared library that needs nothing but libc."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import cache
from .toolchain import c_compiler, run_compiler

NATIVE = Path(__file__).resolve().parent / "runtime" / "native"
_SOURCES = ("constants", "services", "library")
_COMPILE_FLAGS = ["-std=c11", "-O2", "-fPIC", "-g0"]
_LINK_FLAGS = ["-shared", "-s", "-Wl,--build-id=none", "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,-z,relro"]
_ALIGNMENT = 64
_KINDS = {"input": 0, "output": 1, "constant": 2}
_TYPE_CODES = {"i": 0, "u": 1, "f": 2}


@dataclass(frozen=True)
class LinkedArgument:
    """One argument of a kernel in the library's table.

    Args:
        name: its name.
        dtype: element type.
        shape: the operator's shape.
        code_shape: the shape of the same elements in the generated code.
        kind: "input", "output" or "constant".
        optional: whether its address may be NULL.
        value: of a constant.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    code_shape: tuple[int, ...]
    kind: str
    optional: bool = False
    value: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class LinkedKernel:
    """One kernel of the library: its name in the table, the symbol of its code and its arguments."""

    name: str
    symbol: str
    arguments: tuple[LinkedArgument, ...]


def link(kernels: Sequence[LinkedKernel], objects: dict[str, bytes]) -> bytes:
    """The shared library of these kernels. Equal input gives equal bytes.

    Args:
        kernels: rows of the table.
        objects: symbol -> ELF object; several kernels may share one.

    Raises:
        ToolchainError: no C compiler, or it fails.
    """
    table, constants = _table(kernels)
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
    def compile_source() -> bytes:
        with tempfile.TemporaryDirectory(prefix="qcompile-") as name:
            folder = Path(name)
            arguments = [*_COMPILE_FLAGS, f"-I{NATIVE}", "-c", str(NATIVE / f"{source}.c"), "-o", "native.o"]
            run_compiler(arguments, folder, f"compile {source}.c")
            return (folder / "native.o").read_bytes()

    key = cache.digest("native object", c_compiler(), _COMPILE_FLAGS, cache.source_digest(), source)
    return cache.cached(key, compile_source)


def _table(kernels: Sequence[LinkedKernel]) -> tuple[str, bytes]:
    """The table as assembly (data directives only, the same on every architecture), and the constants it points to."""
    constants = _Constants()
    text = [
        '.section .data.rel.ro.local,"aw"',
        f".balign {_ALIGNMENT}",
        *_hidden("qc_kernel_table"),
    ]
    details: list[str] = []
    largest_optional = 8
    for number, kernel in enumerate(kernels):
        text += [f".8byte {_string(details, f'name_{number}', kernel.name)}", f".4byte {len(kernel.arguments)}, 0",
                 f".8byte arguments_{number}", f".8byte __tvm_ffi_{kernel.symbol}"]  # fmt: skip
        rows = [f"arguments_{number}:"]
        for position, argument in enumerate(kernel.arguments):
            dtype = np.dtype(argument.dtype)
            label = f"{number}_{position}"
            offset = 0 if argument.value is None else constants.add(argument.value)
            rows += [
                f".8byte {_string(details, f'argument_{label}', argument.name)}",
                f".4byte {_KINDS[argument.kind]}, {int(argument.optional)}",
                f".4byte {_TYPE_CODES[dtype.kind]}, {8 * dtype.itemsize}",
                f".4byte {len(argument.shape)}, {len(argument.code_shape)}",
                f".8byte shape_{label}, code_shape_{label}",
                f".8byte {offset}",
            ]
            for name, shape in (("shape", argument.shape), ("code_shape", argument.code_shape)):
                details += [".balign 8", f"{name}_{label}:", f".8byte {', '.join(map(str, shape)) or '0'}"]
            if argument.optional:
                largest_optional = max(largest_optional, dtype.itemsize * int(np.prod(argument.shape)))
        details += ['.section .data.rel.ro.local,"aw"', ".balign 8", *rows, ".section .rodata"]
    content = constants.content()
    text += [
        ".section .rodata",
        ".balign 8",
        *_hidden("qc_kernel_table_length"),
        f".4byte {len(kernels)}",
        *details,
        ".balign 8",
        *_hidden("qc_constants_bytes"),
        f".8byte {len(content)}",
        f".balign {_ALIGNMENT}",
        *_hidden("qc_constants"),
        '.incbin "constants.bin"',
        f".balign {_ALIGNMENT}",
        *_hidden("qc_zeros"),
        f".zero {largest_optional}",
        '.section .note.GNU-stack,"",%progbits',
    ]
    return "\n".join(text) + "\n", content


def _hidden(symbol: str) -> list[str]:
    return [f".globl {symbol}", f".hidden {symbol}", f"{symbol}:"]


def _string(details: list[str], label: str, text: str) -> str:
    """Adds a zero-terminated string and returns its label. Every byte is written as a number: names are input."""
    details += [f"{label}:", f".byte {', '.join(map(str, text.encode()))}{', ' if text else ''}0"]
    return label


class _Constants:
    """The constants of a library one after the other, equal ones once."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._offsets: dict[bytes, int] = {}
        self._length = 0

    def add(self, value: npt.NDArray[Any]) -> int:
        content = np.ascontiguousarray(value).tobytes()
        key = hashlib.sha256(content).digest()
        if key not in self._offsets:
            self._offsets[key] = self._length
            padding = -len(content) % _ALIGNMENT
            self._chunks.append(content + bytes(padding))
            self._length += len(content) + padding
        return self._offsets[key]

    def content(self) -> bytes:
        return b"".join(self._chunks) or bytes(_ALIGNMENT)
