"""A kernel library in the memory of the emulated machine: loaded, linked and called."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence

from .....errors import BundleError, EmulationError, EmulationFaultError, KernelError, QCompileError
from ....interface import LibraryArgument
from ...struct_layout import check_version, read_arguments, read_text
from . import c_library, elf
from .machine import TRAP, TRAP_SPACING, Bochs, Fault
from .memory import EXECUTE, READ, WRITE, MemoryFault, Region

_FUNCTIONS = ("qc_abi_version", "qc_kernel_count", "qc_kernel", "qc_run", "qc_last_error")
_MAXIMUM_IMPORTS = 4096
#: bytes of the thread's control block, which C code finds through the register fs
_CONTROL_BLOCK = 256
_STACK_GUARD = 0x5157_4711_0815_A500
_UNWRITTEN = 0xA5
_R64, _GLOB_DAT, _JUMP_SLOT, _RELATIVE, _DTPMOD, _DTPOFF, _TPOFF = 1, 6, 7, 8, 16, 17, 18
_MASK = (1 << 64) - 1


class Program:
    """A library, with its constructors run.

    Args:
        machine: where it runs.
        content: the bytes of the shared library.
        name: what messages call it.

    Raises:
        EmulationError: it is damaged, or needs what is not emulated.
        BundleError: it is not a kernel library, or has another C interface.
    """

    def __init__(self, machine: Bochs, content: bytes, name: str):
        self.memory = machine.memory
        self.heap: dict[int, Region] = {}
        self._machine = machine
        self._name = name
        self._file = elf.read(content, name)
        self._arguments: dict[int, list[LibraryArgument]] = {}
        self._regions: list[Region] = []
        self._traps: dict[int, Callable[[], None]] = {}
        self._first = 0
        missing = [symbol for symbol in _FUNCTIONS if symbol not in self._file.exports]
        if missing:
            raise BundleError(f"The library of {name} is not a kernel library.", given=f"without {', '.join(missing)}")
        try:
            self._image = self._load()
            self.thread_local, self._thread = self._make_thread()
            self._link()
            with self._explained():
                for function in self._initializers():
                    self._call(function)
            check_version(self._signed("qc_abi_version"), name)
            self.kernel_count = self._signed("qc_kernel_count")
        except QCompileError:
            self.unload()
            raise

    def arguments(self, index: int) -> list[LibraryArgument]:
        """The inputs and outputs of a kernel, in order."""
        if index not in self._arguments:
            with self._explained():
                description = self._call_export("qc_kernel", index)
                self._arguments[index] = read_arguments(description, self.memory.read) if description else []
        return self._arguments[index]

    def run(self, index: int, inputs: Sequence[bytes | None], output_sizes: Sequence[int]) -> list[bytes]:
        """Runs a kernel on the bytes of its inputs, and returns those of its outputs.

        Raises:
            KernelError: the kernel reports a failure.
            EmulationError: it does what it must not do.
        """
        names = [argument.name for argument in self.arguments(index)]
        names += ["a tensor"] * (len(inputs) + len(output_sizes) - len(names))
        try:
            regions: list[Region | None] = []
            for name, content in zip(names, inputs, strict=False):
                regions.append(None if content is None else self._tensor(name, content, READ))
            outputs = []
            for name, size in zip(names[len(inputs) :], output_sizes, strict=False):
                outputs.append(self._tensor(name, bytes([_UNWRITTEN]) * size, READ | WRITE))
            addresses = [0 if region is None else region.address for region in (*regions, *outputs)]
            table = struct.pack(f"<{len(addresses)}Q", *addresses)
            place = self._tensor("the table of tensors", table, READ).address
            with self._explained():
                status = self._signed("qc_run", index, place, 1)
                if status != 0:
                    message = read_text(self._call_export("qc_last_error"), self.memory.read)
                    raise KernelError(f"The kernel failed: {message or 'no reason given'}.")
            return [self._read_output(region, size) for region, size in zip(outputs, output_sizes, strict=True)]
        finally:
            self.memory.end_call()

    def unload(self) -> None:
        """Takes it out of memory; it cannot be used any more."""
        for region in (*self._regions, *self.heap.values()):
            self.memory.release(region)
        self._regions.clear()
        self.heap.clear()

    # --- calls out of emulated code: what `c_library.Call` wants ------------------------------------------------------

    def argument(self, position: int) -> int:
        """An argument of the call."""
        return self._machine.argument(position)

    def float_argument(self, size: int) -> float:
        """The first floating-point argument of the call."""
        return self._machine.float_argument(size)

    def return_float(self, value: float, size: int) -> None:
        """Sets the floating-point result of the call."""
        self._machine.return_float(value, size)

    def call_first(self, function: int) -> None:
        """Runs a function of emulated code before the call returns."""
        self._first = function

    # --- loading ------------------------------------------------------------------------------------------------------

    def _load(self) -> Region:
        image = self.memory.reserve(f"the library of {self._name}", self._file.size)
        self._regions.append(image)
        for segment in self._file.segments:
            offset = segment.address
            image.memory[offset : offset + len(segment.content)] = bytes(segment.content)
            start, end = offset // elf.PAGE * elf.PAGE, -(-(offset + segment.size) // elf.PAGE) * elf.PAGE
            access = (segment.access & (WRITE | EXECUTE)) | READ
            self.memory.open(image, image.start + start, image.start + end, access)
        return image

    def _make_thread(self) -> tuple[int, Region]:
        """(address of its variables, its memory): the variables lie just before the control block."""
        segment, alignment = self._file.thread_local
        size = -(-segment.size // max(alignment, 16)) * max(alignment, 16)
        region = self.memory.allocate("memory of the thread", size + _CONTROL_BLOCK, READ | WRITE)
        self._regions.append(region)
        control = region.address = region.end - elf.PAGE + (elf.PAGE - _CONTROL_BLOCK) // alignment * alignment
        self.memory.write(control - size, segment.content)
        self.memory.write(control, struct.pack("<Q8xQ", control, control))
        self.memory.write(control + 0x28, struct.pack("<Q", _STACK_GUARD))
        return control - size, region

    def _link(self) -> None:
        """Applies the relocations; each imported function becomes a trap."""
        imports: dict[str, int] = {}
        page = self.memory.allocate(
            "imported functions", _MAXIMUM_IMPORTS * TRAP_SPACING, READ | WRITE | EXECUTE, is_low=True
        )
        self._regions.append(page)
        self._after_first = self._add_trap(page.start, self._end_first)

        def imported(name: str) -> int:
            if name not in imports:
                if len(imports) + 1 >= _MAXIMUM_IMPORTS:
                    raise MemoryFault(0, True)
                place = page.start + (len(imports) + 1) * TRAP_SPACING
                imports[name] = self._add_trap(place, lambda: self._serve(name))
            return imports[name]

        base, variables = self._image.start, self.thread_local - self._thread.address
        try:
            for relocation in self._file.relocations:
                place, symbol = base + relocation.address, relocation.symbol
                addend = relocation.addend
                if addend is None:
                    addend = struct.unpack("<q", self.memory.read(place, 8))[0]
                if relocation.kind in (_R64, _GLOB_DAT, _JUMP_SLOT) and symbol is not None:
                    if symbol.value is not None:
                        value = base + symbol.value
                    else:
                        is_absent = symbol.is_weak and symbol.name not in c_library.FUNCTIONS
                        value = 0 if is_absent else imported(symbol.name)
                    value += addend if relocation.kind == _R64 else 0
                elif relocation.kind == _RELATIVE:
                    value = base + addend
                elif relocation.kind == _DTPMOD:
                    value = 1
                elif relocation.kind in (_DTPOFF, _TPOFF):
                    value = addend + ((symbol.value or 0) if symbol is not None else 0)
                    value += variables if relocation.kind == _TPOFF else 0
                else:
                    raise EmulationError(
                        f"The library of {self._name} cannot be emulated.",
                        given=f"relocation type {relocation.kind}",
                        remedy="compile the bundle again, or with another C compiler",
                    )
                self.memory.write(place, struct.pack("<Q", value & _MASK))
        except MemoryFault as fault:
            raise EmulationError(
                f"The library of {self._name} is damaged.", given=f"a relocation of address {fault.address - base:#x}"
            ) from fault

    def _add_trap(self, place: int, handle: Callable[[], None]) -> int:
        self.memory.write(place, TRAP)
        self._traps[place] = handle
        return place

    def _initializers(self) -> Iterator[int]:
        if self._file.initializer:
            yield self._image.start + self._file.initializer
        address, count = self._file.initializers
        table = self.memory.read(self._image.start + address, 8 * count) if count else b""
        yield from (function for (function,) in struct.iter_unpack("<Q", table) if function not in (0, _MASK))

    # --- calling ------------------------------------------------------------------------------------------------------

    def _serve(self, name: str) -> None:
        """Does what an imported function does, and returns to emulated code."""
        function = c_library.FUNCTIONS.get(name)
        if function is None:
            raise EmulationError(f"A kernel of {self._name} calls a function that is not emulated.", given=name)
        self._first = 0
        result = function(self)
        if self._first:
            self._machine.resume_at(self._first, self._after_first)
        else:
            self._machine.return_from(result)

    def _end_first(self) -> None:
        self._machine.return_from(0, skipped=8)

    def _call_export(self, name: str, *arguments: int) -> int:
        return self._call(self._image.start + self._file.exports[name], *arguments)

    def _signed(self, name: str, *arguments: int) -> int:
        """The result of a function that returns int32_t."""
        with self._explained():
            result = self._call_export(name, *arguments) & 0xFFFFFFFF
        return result - (1 << 32) if result >> 31 else result

    def _call(self, function: int, *arguments: int) -> int:
        return self._machine.call(function, arguments, self._thread.address, self._traps)

    def _tensor(self, name: str, content: bytes, access: int) -> Region:
        """Memory of its own with a copy of the content, which ends just before a page that does not exist."""
        region = self.memory.allocate(name, len(content), access, window="call")
        region.memory[: region.address - region.start] = bytes([_UNWRITTEN]) * (region.address - region.start)
        region.memory[region.address - region.start :] = content.ljust(region.end - region.address, b"\0")
        return region

    def _read_output(self, region: Region, size: int) -> bytes:
        before = region.address - region.start
        if region.memory[:before] != bytes([_UNWRITTEN]) * before:
            raise EmulationFaultError(f"A kernel of {self._name} writes before the beginning of {region.name}.")
        return region.memory[before : before + size]

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns faults into errors."""
        try:
            yield
        except Fault as fault:
            what, details = self._machine.explain(fault)
            offset = fault.instruction - self._image.start
            place = f"at offset {offset:#x} of the library" if 0 <= offset < self._image.size else "outside of its code"
            raise EmulationFaultError(f"A kernel of {self._name} {what}.", given=f"{details}, {place}") from fault
        except MemoryFault as fault:
            what, details = self._machine.explain_access(fault.address, fault.writes)
            raise EmulationFaultError(f"A kernel of {self._name} {what}.", given=details) from fault
