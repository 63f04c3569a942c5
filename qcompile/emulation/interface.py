"""The emulators by architecture, and the function that all of them are used through."""

from __future__ import annotations

import importlib

from ..c_interface import KernelLibrary
from ..errors import EmulationError

#: architecture, as `uname -m` calls it -> module of this package with a function `open_library(content, cpu, name)`
EMULATORS = {"x86_64": "client"}


def open_library(content: bytes | memoryview, architecture: str, cpu: str, name: str) -> KernelLibrary:
    """A kernel library whose kernels run in emulation, in one thread whatever they are asked for.

    Args:
        content: the bytes of the shared library.
        architecture: its machine, as `uname -m` calls it.
        cpu: the CPU model to emulate.
        name: what messages call the library.

    Raises:
        EmulationError: there is no such emulator or CPU model, or the library is damaged.
        ToolchainError: the emulator has to be prepared and no C compiler does it.
        BundleError: it is no kernel library, or has another C interface.
    """
    if architecture not in EMULATORS:
        raise EmulationError(
            f"There is no emulator for {name}.", given=f"architecture {architecture}", accepted=", ".join(EMULATORS)
        )
    module = importlib.import_module(f".{EMULATORS[architecture]}", __package__)
    library: KernelLibrary = module.open_library(content, cpu, name)
    return library
