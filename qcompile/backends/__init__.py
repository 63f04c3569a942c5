"""What kernels run on: one folder for each kind of hardware, with a compiler half and an executor half.

Both halves are found by name and imported when they are first needed, so that a program that loads bundles imports
neither compilers nor the executors of hardware that its bundles do not mention.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UnknownNameError

if TYPE_CHECKING:
    from .interface import Compiler, Executor, Hardware


@dataclass(frozen=True)
class Backend:
    """Where a backend is, and what must be known of it without importing it.

    Args:
        package: with the modules `facts` (function `parse`), `compiler` and `executor` (objects of these names).
        stages: whose texts can be shown: "computed", "scheduled", "lowered" and the backend's own.
    """

    package: str
    stages: tuple[str, ...]


#: kind of hardware -> its backend
BACKENDS: dict[str, Backend] = {
    "cpu": Backend("qcompile.backends.cpu", ("computed", "scheduled", "lowered", "llvm", "assembly")),
}


def compiler_of(kind: str) -> Compiler:
    """The half of a backend that makes libraries.

    Raises:
        UnknownNameError: there is no such backend.
    """
    compiler: Compiler = _module(kind, "compiler").compiler
    return compiler


def check_compiler(hardware: Hardware) -> None:
    """Raises before the long work unless kernels for a target can be compiled on this machine.

    Raises:
        QCompileError: the first of the compiler's obstacles.
    """
    for obstacle in compiler_of(hardware.kind).obstacles(hardware):
        raise obstacle


def executor_of(kind: str) -> Executor:
    """The half of a backend that runs libraries.

    Raises:
        UnknownNameError: there is no such backend.
    """
    executor: Executor = _module(kind, "executor").executor
    return executor


def all_stages() -> tuple[str, ...]:
    """The stages of all backends, each once, in the order in which a kernel passes them."""
    return tuple(dict.fromkeys(stage for kind in BACKENDS for stage in BACKENDS[kind].stages))


def facts_module(kind: str) -> Any:
    """The module that reads the table of a kind in target files.

    Raises:
        UnknownNameError: there is no such backend.
    """
    return _module(kind, "facts")


def _module(kind: str, half: str) -> Any:
    if kind not in BACKENDS:
        raise UnknownNameError("Unknown kind of hardware.", given=repr(kind)[:80], accepted=", ".join(BACKENDS))
    return importlib.import_module(f"{BACKENDS[kind].package}.{half}")
