"""An x86-64 CPU that is emulated by Bochs: 64-bit mode, no operating system, every fault an error.

There is one in a process: bochscpu cannot have a second, and ends the process badly if it is taken down.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .....errors import EmulationError
from .memory import EXECUTE, PAGE, READ, WRITE, Memory
from .models import Model

_STACK = 8 << 20
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_UNDEFINED, _PROTECTION, _PAGE_FAULT = 6, 13, 14
_EXCEPTIONS = {0: "divides by zero", 16: "raises a floating-point exception", 19: "raises a floating-point exception"}
_SHOWN_BYTES = 15
#: functions of the shim -> what they are given: functions and data of the extension module that its own make use of
_KEPT = {
    "qc_keep_decoder": [
        "_Z11assign_srcsP15bxInstruction_cjbjjjjbb",
        "_Z23evex_displ8_compressionPK15bxInstruction_cjjjj",
        "_Z13fetchDecode64PKhP15bxInstruction_cj",
        "_Z18get_bx_opcode_namet",
    ],
    "qc_keep_cpu": [
        "bx_cpu",
        "_ZN8BX_CPU_C3NOPEP15bxInstruction_c",
        "_ZN8BX_CPU_C23VGATHERQPS_MASK_VpsVSibEP15bxInstruction_c",
        "_ZN8BX_CPU_C23VPBROADCASTMB2Q_VdqKEbREP15bxInstruction_c",
        "_ZN8BX_CPU_C23VPBROADCASTMW2D_VdqKEwREP15bxInstruction_c",
    ],
}

#: code that does nothing but call the process that emulates
TRAP = b"\xf4"
#: what traps lie apart
TRAP_SPACING = 16


class Fault(Exception):  # noqa: N818 - an event in the emulated machine
    """Emulated code cannot go on.

    Args:
        instruction: its address.
        vector: number of the exception.
        code: its error code.
        address: that was touched.
    """

    def __init__(self, instruction: int, vector: int, code: int, address: int):
        self.instruction = instruction
        self.vector = vector
        self.code = code
        self.address = address
        super().__init__(instruction, vector, code, address)


class Bochs:
    """The CPU and its memory.

    Args:
        name: of the model.
        model: the model.
        shim: the compiled `native/bochs_shim.c`.

    Raises:
        EmulationError: bochscpu cannot be used.
    """

    def __init__(self, name: str, model: Model, shim: bytes):
        self.name = name
        self._shim = _load(shim)
        try:
            import bochscpu
            import bochscpu.cpu
            import bochscpu.memory
        except ImportError as error:
            raise EmulationError("The emulator bochscpu cannot be loaded.", given=str(error)) from error
        self._package: Any = bochscpu
        extension = ctypes.CDLL(sys.modules["bochscpu._bochscpu"].__file__)
        try:
            given = {"qc_choose_model": [model.symbol], **_KEPT}
            addresses = {name: [_address(extension, symbol) for symbol in given[name]] for name in given}
        except ValueError:
            raise EmulationError(
                f"This version of bochscpu cannot emulate {name}.", remedy="pip install bochscpu-python==0.4.0"
            ) from None
        for name, values in addresses.items():
            getattr(self._shim, name)(*values)
        self._counter = ctypes.c_uint64.in_dll(self._shim, "qc_instructions")
        self._registers = model.registers
        self.memory = Memory(bochscpu.memory.page_insert, bochscpu.memory.page_remove)
        self._stack = self.memory.allocate("the stack", _STACK, READ | WRITE)
        exit_page = self.memory.allocate("the exit", PAGE, READ | WRITE | EXECUTE)
        self.memory.write(exit_page.start, TRAP)
        self._exit = exit_page.start
        self._event: tuple[int, ...] | None = None
        self._session = bochscpu.Session()
        self._session.missing_page_handler = self._missing_page
        hook = bochscpu.Hook()
        hook.exception = self._exception
        hook.hlt = self._trap
        self._hooks = [hook]

    @property
    def instructions(self) -> int:
        """Instructions executed so far."""
        return int(self._counter.value)

    def watch(self, parent: int) -> None:
        """From now on the process ends with this parent."""
        self._shim.qc_watch_parent(parent)

    def call(
        self, function: int, arguments: tuple[int, ...], thread: int, traps: Mapping[int, Callable[[], None]]
    ) -> int:
        """Runs a function to its end.

        Args:
            function: its address.
            arguments: up to six integers.
            thread: address that the register fs points to.
            traps: address of a trap -> what is done there; it sets the registers with which emulated code goes on.

        Returns:
            Its result, as 64 bits.

        Raises:
            Fault: an exception of the CPU.
            MemoryFault: a trap was given a wrong address.
        """
        state = self._initial_state(thread)
        state.rsp = self._stack.end - 64 - 8
        self.memory.write(state.rsp, struct.pack("<Q", self._exit))
        for register, value in zip(_ARGUMENTS, arguments, strict=False):
            setattr(state, register, value)
        state.rip = function
        self._session.cpu.state = state
        while True:
            if self.memory.is_stale:
                self._session.cpu.set_mode()  # which forgets what it knows of the page tables
                self.memory.is_stale = False
            self._event = None
            self._session.run(self._hooks)
            if self._event is None:
                raise EmulationError("The emulator stopped without a reason.")
            if len(self._event) > 1:
                raise Fault(*self._event)
            (place,) = self._event
            if place == self._exit:
                return int(self._session.cpu.rax)
            if place not in traps:
                raise Fault(place, _PROTECTION, 0, 0)
            traps[place]()

    def argument(self, position: int) -> int:
        """An argument of the function at whose first instruction the CPU is."""
        if position < len(_ARGUMENTS):
            return int(getattr(self._session.cpu, _ARGUMENTS[position]))
        place = self._session.cpu.rsp + 8 * (1 + position - len(_ARGUMENTS))
        return int(struct.unpack("<Q", self.memory.read(place, 8))[0])

    def float_argument(self, size: int) -> float:
        """The first floating-point argument."""
        low = struct.pack("<Q", self._session.cpu.state.zmm[0].q[0])
        return float(struct.unpack("<f" if size == 4 else "<d", low[:size])[0])

    def return_float(self, value: float, size: int) -> None:
        """Puts a number where a function returns it."""
        state = self._session.cpu.state
        registers = state.zmm
        content = struct.pack("<f" if size == 4 else "<d", value).ljust(8, b"\0")
        registers[0].q = [int(struct.unpack("<Q", content)[0]), *registers[0].q[1:]]
        state.zmm = registers
        self._session.cpu.state = state

    def return_from(self, value: int, skipped: int = 0) -> None:
        """Ends the function at whose first instruction the CPU is; `skipped` bytes lie on the stack before."""
        cpu = self._session.cpu
        place = cpu.rsp + skipped
        cpu.rax = value & ((1 << 64) - 1)
        cpu.rip = struct.unpack("<Q", self.memory.read(place, 8))[0]
        cpu.rsp = place + 8

    def resume_at(self, function: int, return_address: int) -> None:
        """Runs a function which returns to a trap, 8 bytes before the return address of this one."""
        cpu = self._session.cpu
        cpu.rsp = cpu.rsp - 16
        self.memory.write(cpu.rsp, struct.pack("<Q", return_address))
        cpu.rip = function

    def explain(self, fault: Fault) -> tuple[str, str]:
        """(what the code did, details) of a fault, without the instruction's place."""
        code = self.memory.readable(fault.instruction, _SHOWN_BYTES)
        if fault.vector == _UNDEFINED:
            if self._shim.qc_is_refused(code.ljust(_SHOWN_BYTES, b"\0"), _SHOWN_BYTES):
                return "executes an instruction that the emulator Bochs computes wrongly", f"{code.hex(' ')}"
            return f"executes an instruction that the emulated CPU {self.name} does not have", f"{code.hex(' ')}"
        if fault.vector == _PAGE_FAULT:
            if fault.code & 16:
                return "jumps to memory that holds no code", f"address {fault.address:#x}"
            return self.explain_access(fault.address, bool(fault.code & 2))
        if fault.vector == _PROTECTION:
            what = "accesses memory that is not aligned as its instruction wants, or does what only systems may"
            return what, f"{code.hex(' ')}"
        return _EXCEPTIONS.get(fault.vector, f"raises exception {fault.vector} of the CPU"), f"{code.hex(' ')}"

    def explain_access(self, address: int, writes: bool) -> tuple[str, str]:
        """(what the code did, details) of a wrong access."""
        place = self.memory.describe(address)
        if writes and place.startswith("in "):
            place += ", which is read-only"
        return f"{'writes' if writes else 'reads'} {place}", f"address {address:#x}"

    def _initial_state(self, thread: int) -> Any:
        package = self._package
        state = package.State()
        package.cpu.set_long_mode(state)
        # monitor the coprocessor, do not emulate it; read-only pages are so for the system too, as which code runs
        state.cr0 = (state.cr0 & ~0b1100) | 1 << 1 | 1 << 16
        state.cr4 |= 1 << 9 | 1 << 10  # SSE, with exceptions of its own
        if self._registers > 3:
            state.cr4 |= 1 << 18  # XCR0 exists
            state.xcr0 = self._registers
        state.efer |= 1 << 11  # pages may forbid execution
        state.mxcsr, state.mxcsr_mask, state.fpcw, state.fptw = 0x1F80, 0xFFFF, 0x37F, 0xFFFF
        state.cr3 = self.memory.root
        state.cs = self._segment(8, 0xA09B)
        for name in ("ss", "ds", "es", "gs"):
            setattr(state, name, self._segment(16, 0xC093))
        state.fs = self._segment(16, 0xC093, thread)
        state.rflags = 2
        return state

    def _segment(self, selector: int, attributes: int, base: int = 0) -> Any:
        segment = self._package.Segment()
        segment.present = True
        segment.selector = selector
        segment.base = base
        segment.limit = 0xFFFFFFFF
        segment.attr = attributes
        return segment

    def _exception(self, session: Any, cpu: int, vector: int, code: int) -> None:
        # The first time, the instruction pointer is already behind the instruction. Then the CPU goes back and looks
        # for a handler; there is none, which is an exception too.
        if self._event is None:
            self._event = (session.cpu.rip, vector, code, session.cpu.cr2)
        else:
            self._event = (session.cpu.rip, *self._event[1:])
            session.stop()

    def _trap(self, session: Any, cpu: int) -> None:
        self._event = (session.cpu.rip - len(TRAP),)
        session.stop()

    def _missing_page(self, address: int) -> None:
        self._event = (self._session.cpu.rip, _PAGE_FAULT, 0, address)
        self._session.stop()


def _address(library: ctypes.CDLL, symbol: str) -> ctypes.c_void_p:
    """Where a function or variable of a library lies; raises ValueError if there is none."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, symbol)))


def _load(shim: bytes) -> ctypes.CDLL:
    """Loads the shim so that the symbols of what is loaded later are looked up in it first."""
    descriptor = os.memfd_create("qcompile-bochs-shim", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(shim)
    try:
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise EmulationError("The emulator cannot be prepared.", given=str(error)) from error
