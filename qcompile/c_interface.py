"""What Python knows of the C interface of a kernel library, whether it runs in this process or is emulated.

The layout of its tables is that of `runtime/native/qcompile.h` on 64-bit machines, whose numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import BundleError

ABI_VERSION = 1

#: (address, bytes) -> what is there
Read = Callable[[int, int], bytes]

_TYPE_NAMES = {0: "int", 1: "uint", 2: "float"}
_CONSTANT = 2
#: qc_kernel_description: name, argument_count, arguments, entry
_KERNEL = struct.Struct("<Qi4xQQ")
#: qc_argument: name, kind, optional, type_code, bits, dimensions, code_dimensions, shape, code_shape, constant_offset
_ARGUMENT = struct.Struct("<QiiiiiiQQQ")
_MAXIMUM_ARGUMENTS = 256
_MAXIMUM_DIMENSIONS = 64
_MAXIMUM_TEXT = 65536
#: no piece of that size, at a multiple of it, lies in two pages
_TEXT_PIECE = 64


@dataclass(frozen=True)
class Argument:
    """An input or output in a library's table: name, dtype, the operator's shape, whether it may be left out."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    optional: bool


class KernelLibrary(Protocol):
    """A library whose kernels can be run."""

    kernel_count: int

    @property
    def instructions(self) -> int:
        """Instructions of the last run in this thread, where they are counted; else 0."""

    def arguments(self, index: int) -> list[Argument]:
        """The inputs and outputs of a kernel as the library's table has them, in order."""

    def run(self, index: int, inputs: Sequence[Any], outputs: Sequence[Any], threads: int) -> None:
        """Runs a kernel.

        Args:
            index: its number in the table.
            inputs: C-contiguous arrays; None for an optional one that is left out.
            outputs: C-contiguous arrays that can be written.
            threads: 0 takes as many as the machine has cores.

        Raises:
            KernelError: the kernel reports a failure.
        """


def check_version(version: int, name: str) -> None:
    """Raises BundleError unless the library `name` has this version of the interface."""
    if version != ABI_VERSION:
        raise BundleError(
            f"The library of {name} has another C interface.", given=f"version {version}", accepted=ABI_VERSION
        )


def read_arguments(description: int, read: Read) -> list[Argument]:
    """The inputs and outputs of a kernel, in order.

    Args:
        description: address of its qc_kernel_description.
        read: reads the library's memory.

    Raises:
        BundleError: the table is impossible.
    """
    _, count, rows, _ = _KERNEL.unpack(read(description, _KERNEL.size))
    if not 0 <= count <= _MAXIMUM_ARGUMENTS:
        raise BundleError("The table of a kernel library is damaged.", given=f"{count} arguments")
    arguments = []
    for position in range(count):
        row = read(rows + position * _ARGUMENT.size, _ARGUMENT.size)
        name, kind, optional, type_code, bits, dimensions, _, shape, _, _ = _ARGUMENT.unpack(row)
        if not 0 <= dimensions <= _MAXIMUM_DIMENSIONS:
            raise BundleError("The table of a kernel library is damaged.", given=f"{dimensions} dimensions")
        if kind != _CONSTANT:
            sizes = struct.unpack(f"<{dimensions}q", read(shape, 8 * dimensions)) if dimensions else ()
            dtype = f"{_TYPE_NAMES.get(type_code, '?')}{bits}"
            arguments.append(Argument(read_text(name, read), dtype, sizes, bool(optional)))
    return arguments


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
