"""The table of kernels inside a library: the one place that writes it, as assembly, and reads it, from memory.

The structures are those of `native/qcompile.h` on 64-bit machines whose numbers are little-endian. A structure here is
a list of fields; the assembler's directives and the format for reading both follow from it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BundleError, LoweringError
from ..interface import KernelTable, LibraryArgument, TableArgument, TableKernel

ABI_VERSION = 1
#: a kernel's inputs, constants and outputs together; the library keeps its views of them on the stack
MAXIMUM_ARGUMENTS = 32
#: of an array, as in NumPy
MAXIMUM_DIMENSIONS = 64
_MAXIMUM_TEXT = 65536
#: no piece of this size, at a multiple of it, lies in two pages
_TEXT_PIECE = 64
_ALIGNMENT = 64

#: (address, bytes) -> what is there
Read = Callable[[int, int], bytes]

#: type of a field -> (assembler's directive, code of the module struct)
_TYPES = {"pointer": (".8byte", "Q"), "uint64": (".8byte", "Q"), "int32": (".4byte", "i"), "padding": (".4byte", "4x")}
#: structure -> (field, type), in order
STRUCTURES: dict[str, tuple[tuple[str, str], ...]] = {
    "qc_kernel_description": (
        ("name", "pointer"), ("argument_count", "int32"), ("padding", "padding"), ("arguments", "pointer"),
        ("entry", "pointer"),
    ),
    "qc_argument": (
        ("name", "pointer"), ("kind", "int32"), ("optional", "int32"), ("type_code", "int32"), ("bits", "int32"),
        ("dimensions", "int32"), ("code_dimensions", "int32"), ("shape", "pointer"), ("code_shape", "pointer"),
        ("constant_offset", "uint64"),
    ),
}  # fmt: skip
_KINDS = {"input": 0, "output": 1, "constant": 2}
_TYPE_CODES = {"i": 0, "u": 1, "f": 2}
_TYPE_NAMES = {0: "int", 1: "uint", 2: "float"}


def format_of(structure: str) -> struct.Struct:
    """The structure's format for the module struct."""
    return struct.Struct("<" + "".join(_TYPES[kind][1] for _, kind in STRUCTURES[structure]))


_FORMATS = {name: format_of(name) for name in STRUCTURES}


# --- writing ---------------------------------------------------------------------------------------------------------


def table_text(kernels: KernelTable) -> tuple[str, bytes]:
    """The table as assembly, with data directives only, the same on every architecture; and the constants it points to.

    The text includes the constants as the file "constants.bin".

    Raises:
        LoweringError: a kernel has more arguments, or an argument more dimensions, than a library can pass on.
    """
    for kernel in kernels:
        _check_limits(kernel)
    constants = _Constants()
    text = ['.section .data.rel.ro.local,"aw"', f".balign {_ALIGNMENT}", *_hidden("qc_kernel_table")]
    details: list[str] = []
    largest_optional = 8
    for number, kernel in enumerate(kernels):
        text += _row("qc_kernel_description", {
            "name": _string(details, f"name_{number}", kernel.name),
            "argument_count": len(kernel.arguments),
            "arguments": f"arguments_{number}",
            "entry": f"__tvm_ffi_{kernel.symbol}",
        })  # fmt: skip
        rows = [f"arguments_{number}:"]
        for position, argument in enumerate(kernel.arguments):
            rows += _argument_row(argument, f"{number}_{position}", details, constants)
            if argument.optional:
                size = np.dtype(argument.dtype).itemsize * int(np.prod(argument.shape))
                largest_optional = max(largest_optional, size)
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


def _check_limits(kernel: TableKernel) -> None:
    if len(kernel.arguments) > MAXIMUM_ARGUMENTS:
        raise LoweringError(
            f"Kernel {kernel.name!r} has too many tensors for a kernel library.",
            given=f"{len(kernel.arguments)} inputs, constants and outputs",
            accepted=f"at most {MAXIMUM_ARGUMENTS}",
        )
    for argument in kernel.arguments:
        if max(len(argument.shape), len(argument.code_shape)) > MAXIMUM_DIMENSIONS:
            raise LoweringError(
                f"Tensor {argument.name} of kernel {kernel.name!r} has too many dimensions for a kernel library.",
                given=len(argument.shape),
                accepted=f"at most {MAXIMUM_DIMENSIONS}",
            )


def _argument_row(argument: TableArgument, label: str, details: list[str], constants: _Constants) -> list[str]:
    dtype = np.dtype(argument.dtype)
    row = _row("qc_argument", {
        "name": _string(details, f"argument_{label}", argument.name),
        "kind": _KINDS[argument.kind],
        "optional": int(argument.optional),
        "type_code": _TYPE_CODES[dtype.kind],
        "bits": 8 * dtype.itemsize,
        "dimensions": len(argument.shape),
        "code_dimensions": len(argument.code_shape),
        "shape": f"shape_{label}",
        "code_shape": f"code_shape_{label}",
        "constant_offset": 0 if argument.value is None else constants.add(argument.value),
    })  # fmt: skip
    for name, shape in (("shape", argument.shape), ("code_shape", argument.code_shape)):
        details += [".balign 8", f"{name}_{label}:", f".8byte {', '.join(map(str, shape)) or '0'}"]
    return row


def _row(structure: str, values: Mapping[str, Any]) -> list[str]:
    return [f"{_TYPES[kind][0]} {values.get(name, 0)}" for name, kind in STRUCTURES[structure]]


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


# --- reading ---------------------------------------------------------------------------------------------------------


def check_version(version: int, name: str) -> None:
    """Raises BundleError unless the library `name` has this version of the interface."""
    if version != ABI_VERSION:
        raise BundleError(
            f"The library of {name} has another C interface.", given=f"version {version}", accepted=ABI_VERSION
        )


def read_arguments(description: int, read: Read) -> list[LibraryArgument]:
    """The inputs and outputs of a kernel, in order.

    Args:
        description: address of its qc_kernel_description.
        read: reads the library's memory.

    Raises:
        BundleError: the table is impossible.
    """
    kernel = _read_structure("qc_kernel_description", description, read)
    count = _checked(kernel["argument_count"], MAXIMUM_ARGUMENTS, "arguments")
    size = _FORMATS["qc_argument"].size
    arguments = []
    for position in range(count):
        row = _read_structure("qc_argument", kernel["arguments"] + position * size, read)
        dimensions = _checked(row["dimensions"], MAXIMUM_DIMENSIONS, "dimensions")
        if row["kind"] != _KINDS["constant"]:
            shape = struct.unpack(f"<{dimensions}q", read(row["shape"], 8 * dimensions)) if dimensions else ()
            dtype = f"{_TYPE_NAMES.get(row['type_code'], '?')}{row['bits']}"
            arguments.append(LibraryArgument(read_text(row["name"], read), dtype, shape, bool(row["optional"])))
    return arguments


def _read_structure(structure: str, address: int, read: Read) -> dict[str, int]:
    layout = _FORMATS[structure]
    names: Sequence[str] = [name for name, kind in STRUCTURES[structure] if kind != "padding"]
    return dict(zip(names, layout.unpack(read(address, layout.size)), strict=True))


def _checked(count: int, most: int, what: str) -> int:
    if not 0 <= count <= most:
        raise BundleError("The table of a kernel library is damaged.", given=f"{count} {what}")
    return count


def read_text(address: int, read: Read) -> str:
    """The zero-terminated text at an address.

    Raises:
        BundleError: it does not end.
    """
    content = b""
    while len(content) < _MAXIMUM_TEXT:
        end = (address // _TEXT_PIECE + 1) * _TEXT_PIECE
        piece = read(address, end - address)
        content += piece.partition(b"\0")[0]
        if b"\0" in piece:
            return content.decode(errors="replace")
        address = end
    raise BundleError("The table of a kernel library is damaged.", given="a text without end")
