"""The compiler of CPUs: preparation and object code by LLVM, linked by the C compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import MissingDependencyError, QCompileError, ToolchainError
from ...system import toolchain, tvm_versions
from ..interface import Code, Hardware, KernelTable
from .linking import link

if TYPE_CHECKING:
    import tvm


class CpuCompiler:
    """See `interface.Compiler`. TVM is imported when it is first needed, which takes seconds."""

    def obstacles(self, hardware: Hardware) -> list[QCompileError]:
        """The packages of TVM, and the C compiler that links."""
        found: list[QCompileError] = []
        for check in (tvm_versions.check, toolchain.c_compiler):
            try:
                check()
            except (MissingDependencyError, ToolchainError) as error:
                found.append(error)
        return found

    def prepare(self, function: tvm.tirx.PrimFunc, hardware: Hardware) -> tvm.tirx.PrimFunc:
        """Any addresses, one instruction that rounds, products that LLVM does not fuse with a sum."""
        from . import lowering

        return lowering.prepare(function)

    def generate(self, module: tvm.IRModule, symbol: str, hardware: Hardware, wanted: Sequence[str] = ()) -> Code:
        """An object file."""
        from . import lowering

        return lowering.generate(module, symbol, hardware, wanted)

    def link(self, table: KernelTable, codes: Mapping[str, Code], hardware: Hardware) -> bytes:
        """A shared library."""
        return link(table, {symbol: code.content for symbol, code in codes.items()})

    def source_paths(self) -> Sequence[str]:
        """What determines object files; linking has keys of its own."""
        folder = "backends/cpu"
        return tuple(f"{folder}/{name}.py" for name in ("compiler", "lowering", "llvm", "x86", "aarch64", "facts"))


compiler = CpuCompiler()
