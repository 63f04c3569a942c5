"""The emulators by architecture, and the functions through which all of them are used."""

from __future__ import annotations

import importlib
from typing import Any

from ....errors import EmulationError
from ...interface import KernelLibrary

#: architecture, as `uname -m` calls it -> package with the modules `models` (MODELS: the CPUs that it emulates) and
#: `client` (functions `check_installed()` and `open_library(content, cpu, name)`)
EMULATORS = {"x86_64": "bochs"}


def devices(architecture: str) -> tuple[str, ...]:
    """The CPU models that can be emulated; none for an architecture without an emulator."""
    return tuple(_module(architecture, "models").MODELS) if architecture in EMULATORS else ()


def check(architecture: str, cpu: str, name: str) -> None:
    """Raises EmulationError, which says why, unless the library `name` can be emulated here."""
    if architecture not in EMULATORS:
        raise EmulationError(
            f"There is no emulator for {name}.", given=f"architecture {architecture}", accepted=", ".join(EMULATORS)
        )
    if not cpu:
        raise EmulationError(
            f"The bundle does not say which CPU to emulate for {name}.",
            remedy="compile it again with this version; a target file of your own needs the field emulated_cpu",
        )
    if cpu not in devices(architecture):
        raise EmulationError(
            "Unknown CPU model to emulate.", given=repr(cpu)[:80], accepted=", ".join(devices(architecture))
        )
    _module(architecture, "client").check_installed()


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
        BundleError: the content is not a kernel library, or has another C interface.
    """
    check(architecture, cpu, name)
    library: KernelLibrary = _module(architecture, "client").open_library(content, cpu, name)
    return library


def _module(architecture: str, half: str) -> Any:
    return importlib.import_module(f".{EMULATORS[architecture]}.{half}", __package__)
