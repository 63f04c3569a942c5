"""A kernel library in this process: opened from memory, called through its C interface, closed when unused."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BundleError, KernelError

ABI_VERSION = 1


_CONSTANT = 2
_TYPE_NAMES = {0: "int", 1: "uint", 2: "float"}


class _ArgumentDescription(ctypes.Structure):
    """qc_argument of qcompile.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("optional", ctypes.c_int32),
        ("type_code", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code_dimensions", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("code_shape", ctypes.POINTER(ctypes.c_int64)),
        ("constant_offset", ctypes.c_uint64),
    )


class _KernelDescription(ctypes.Structure):
    """qc_kernel_description of qcompile.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("argument_count", ctypes.c_int32),
        ("arguments", ctypes.POINTER(_ArgumentDescription)),
        ("entry", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Argument:
    """An input or output in a library's table: name, dtype, the operator's shape, whether it may be left out."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    optional: bool


class Library:
    """The functions of one kernel library.

    Args:
        content: the bytes of the shared library.
        name: what messages call it.

    Raises:
        BundleError: the system's loader refuses it, or it has another C interface.
    """

    def __init__(self, content: bytes | memoryview, name: str):
        if sys.platform != "linux":
            raise BundleError("Kernel libraries run on Linux.", given=sys.platform, accepted="linux")
        # no file is left behind, and none can be exchanged between the check and the load; the descriptor stays open,
        # since the system's loader takes two libraries of the same path for one
        descriptor = os.memfd_create("qcompile-kernels", os.MFD_CLOEXEC)
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            self._library = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        except OSError as error:
            os.close(descriptor)
            raise BundleError(f"The library of {name} cannot be loaded: {error}.") from error
        self._finalizer = weakref.finalize(self, _close, self._library._handle, descriptor)
        try:
            self._declare()
        except AttributeError as error:
            raise BundleError(f"The library of {name} is no kernel library: {error}.") from error
        version = self._library.qc_abi_version()
        if version != ABI_VERSION:
            raise BundleError(
                f"The library of {name} has another C interface.", given=f"version {version}", accepted=ABI_VERSION
            )
        self.kernel_count = int(self._library.qc_kernel_count())

    def _declare(self) -> None:
        self._library.qc_abi_version.restype = ctypes.c_int32
        self._library.qc_kernel_count.restype = ctypes.c_int32
        self._library.qc_last_error.restype = ctypes.c_char_p
        self._library.qc_kernel.restype = ctypes.POINTER(_KernelDescription)
        self._library.qc_kernel.argtypes = [ctypes.c_int32]
        self._run = self._library.qc_run
        self._run.restype = ctypes.c_int32
        self._run.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]

    def arguments(self, index: int) -> list[Argument]:
        """The inputs and outputs of a kernel as the library's table has them, in order."""
        description = self._library.qc_kernel(index).contents
        return [
            Argument(
                entry.name.decode(errors="replace"),
                f"{_TYPE_NAMES.get(entry.type_code, '?')}{entry.bits}",
                tuple(entry.shape[axis] for axis in range(entry.dimensions)),
                bool(entry.optional),
            )
            for entry in (description.arguments[position] for position in range(description.argument_count))
            if entry.kind != _CONSTANT
        ]

    def run(self, index: int, addresses: Sequence[int], threads: int) -> None:
        """Runs a kernel on tensors at these addresses (inputs, then outputs; 0 for an optional one left out).

        Raises:
            KernelError: the kernel reports a failure.
        """
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        if self._run(index, pointers, threads) != 0:
            message = self._library.qc_last_error().decode(errors="replace")
            raise KernelError(f"The kernel failed: {message or 'no reason given'}.")


def _close(handle: int, descriptor: int) -> None:
    # at exit the process goes anyway, and threads of the application may still be in a kernel
    if not sys.is_finalizing():
        _ctypes.dlclose(handle)
        os.close(descriptor)
