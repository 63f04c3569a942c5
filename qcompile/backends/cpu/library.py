"""A kernel library in this process: opened from memory, called through its C interface, closed when unused."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from ...errors import BundleError, KernelError
from ..interface import LibraryArgument, RunOptions
from .struct_layout import check_version, read_arguments

Array = npt.NDArray[Any]


class Library:
    """The functions of one kernel library.

    Args:
        content: the bytes of the shared library.
        name: what messages call it.

    Raises:
        BundleError: the system's loader refuses it, or it has another C interface.
    """

    #: they are not counted
    instructions = 0

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
            raise BundleError(f"The library of {name} is not a kernel library: {error}.") from error
        check_version(self._library.qc_abi_version(), name)
        self.kernel_count = int(self._library.qc_kernel_count())

    def _declare(self) -> None:
        self._library.qc_abi_version.restype = ctypes.c_int32
        self._library.qc_kernel_count.restype = ctypes.c_int32
        self._library.qc_last_error.restype = ctypes.c_char_p
        self._library.qc_kernel.restype = ctypes.c_void_p
        self._library.qc_kernel.argtypes = [ctypes.c_int32]
        self._run = self._library.qc_run
        self._run.restype = ctypes.c_int32
        self._run.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]

    def arguments(self, index: int) -> list[LibraryArgument]:
        """The inputs and outputs of a kernel as the library's table has them, in order."""
        return read_arguments(self._library.qc_kernel(index), ctypes.string_at)

    def run(self, index: int, inputs: Sequence[Array | None], outputs: Sequence[Array], options: RunOptions) -> None:
        """Runs a kernel. See `interface.KernelLibrary`.

        Raises:
            KernelError: the kernel reports a failure.
        """
        addresses = [0 if array is None else _address(array) for array in inputs]
        addresses += map(_address, outputs)
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        if self._run(index, pointers, options.threads) != 0:
            message = self._library.qc_last_error().decode(errors="replace")
            raise KernelError(f"The kernel failed: {message or 'no reason given'}.")

    def time(
        self, index: int, inputs: Sequence[Array | None], outputs: Sequence[Array], options: RunOptions
    ) -> float | None:
        """None: the caller takes the time."""
        return None


def _address(array: Array) -> int:
    if array.size and array.flags.writeable:  # 4x faster than __array_interface__, itself faster than array.ctypes
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return int(array.__array_interface__["data"][0])


def _close(handle: int, descriptor: int) -> None:
    # at exit the process goes anyway, and threads of the application may still be in a kernel
    if not sys.is_finalizing():
        _ctypes.dlclose(handle)
        os.close(descriptor)
