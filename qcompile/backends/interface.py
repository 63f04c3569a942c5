"""What a backend owes: the values that pass between the parts, and the two halves of every kind of hardware.

A compiler turns a scheduled function into code and links code into a library; it may import TVM, inside functions. An
executor opens such libraries and never imports TVM. See docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from ..errors import QCompileError
from ..spec import Operator

if TYPE_CHECKING:
    import tvm

    from ..compute.arguments import CodeArgument

#: what a library needs of the machine that runs it: plain JSON values, as the backend's executor understands them
Needs = Mapping[str, Any]

MAXIMUM_THREADS = 256


class HardwareFacts(Protocol):
    """What a target file says in the table of its kind. Each backend has a frozen dataclass of its own."""

    @property
    def needs(self) -> Needs:
        """What a machine must have to run kernels of the target."""


@dataclass(frozen=True)
class Hardware:
    """One target: a target file, read and checked.

    Args:
        name: the target's name.
        description: a line for people.
        kind: the backend, a key of `backends.BACKENDS`.
        preference: of several targets that run on a machine, the one with the largest number is taken.
        rules: schedule rules in order of preference.
        target: the dictionary for `tvm.target.Target`.
        facts: what the kind's own table says, such as `cpu.facts.CpuFacts`.
        is_packaged: whether the file comes with the package; reviewed knobs and records hold for such targets alone.
    """

    name: str
    description: str
    kind: str
    preference: int
    rules: tuple[str, ...]
    target: Mapping[str, Any]
    facts: Any
    is_packaged: bool = False


@dataclass(frozen=True)
class Code:
    """The generated code of one operator, before it is linked.

    Args:
        symbol: the name of its entry, from which a backend makes the names that it needs.
        content: in the backend's own form, such as an object file.
        workspace_bytes: scratch memory of a call in one thread.
        arguments: what the code is called with, in order.
        texts: stage -> text, of the stages that were asked for.
    """

    symbol: str
    content: bytes
    workspace_bytes: int
    arguments: tuple[CodeArgument, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableArgument:
    """One argument of a kernel on its way into a library.

    Args:
        name: its name.
        dtype: element type.
        shape: the operator's shape.
        code_shape: the shape of the same elements in the generated code.
        kind: "input", "output" or "constant".
        optional: whether it may be left out, and counts as zeros then.
        value: of a constant.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    code_shape: tuple[int, ...]
    kind: str
    optional: bool = False
    value: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class TableKernel:
    """One kernel on its way into a library.

    Args:
        name: its name in the table.
        symbol: of its code; several kernels may share code.
        arguments: in the order of the code.
        operator: what it computes.
        constants: the operator's tensors that are fixed, as they were given.
    """

    name: str
    symbol: str
    arguments: tuple[TableArgument, ...]
    operator: Operator
    constants: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


#: the kernels of a library, in order
KernelTable = Sequence[TableKernel]


@dataclass(frozen=True)
class LibraryArgument:
    """An input or output in a library's table: name, dtype, the operator's shape, whether it may be left out."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    optional: bool


@dataclass(frozen=True)
class Place:
    """Where a library runs.

    Args:
        device: the device, or the model that is emulated; "" is the machine's own.
        is_emulated: whether the device is emulated.
    """

    device: str = ""
    is_emulated: bool = False


class Emulation(Enum):
    """Which libraries may be emulated."""

    NEVER = "never"
    WHERE_MISSING = "where missing"
    ALWAYS = "always"


@dataclass(frozen=True)
class RunOptions:
    """How a kernel is run.

    Args:
        threads: number of threads, 1 to `MAXIMUM_THREADS`; 0 (default) takes as many as the machine has cores.
        stream: the queue of a device; None (default) is the device's own.
    """

    threads: int = 0
    stream: Any = None


class KernelLibrary(Protocol):
    """A library whose kernels can be run."""

    kernel_count: int

    @property
    def instructions(self) -> int:
        """Instructions of the last run in this thread, where they are counted; else 0."""

    def arguments(self, index: int) -> list[LibraryArgument]:
        """The inputs and outputs of a kernel as the library's table has them, in order."""

    def run(
        self,
        index: int,
        inputs: Sequence[npt.NDArray[Any] | None],
        outputs: Sequence[npt.NDArray[Any]],
        options: RunOptions,
    ) -> None:
        """Runs a kernel.

        Args:
            index: the kernel's number in the table.
            inputs: C-contiguous arrays; None for an optional one that is left out.
            outputs: C-contiguous arrays that can be written.
            options: how.

        Raises:
            KernelError: the kernel reports a failure.
        """

    def time(
        self,
        index: int,
        inputs: Sequence[npt.NDArray[Any] | None],
        outputs: Sequence[npt.NDArray[Any]],
        options: RunOptions,
    ) -> float | None:
        """Runs a kernel and returns the seconds by the device's clock.

        None without running it: the device has no clock, and the caller takes the time of `run`.
        """


class Compiler(Protocol):
    """The half of a backend that makes libraries."""

    def obstacles(self, hardware: Hardware) -> list[QCompileError]:
        """Why code cannot be generated or linked for a target on this machine; empty where it can."""

    def prepare(self, function: tvm.tirx.PrimFunc, hardware: Hardware) -> tvm.tirx.PrimFunc:
        """A computed function, ready for a schedule rule: addresses, rounding, products that must not be fused."""

    def generate(self, module: tvm.IRModule, symbol: str, hardware: Hardware, wanted: Sequence[str] = ()) -> Code:
        """The code of the scheduled function "main".

        Args:
            module: the scheduled module.
            symbol: an identifier.
            hardware: the target.
            wanted: of the backend's stages those whose text is wanted ("computed" is known to the caller alone).

        Raises:
            LoweringError: the code generator refuses the function.
        """

    def link(self, table: KernelTable, codes: Mapping[str, Code], hardware: Hardware) -> bytes:
        """The library of these kernels. Equal input gives equal bytes.

        Args:
            table: the kernels.
            codes: symbol -> code.
            hardware: the target.

        Raises:
            ToolchainError: a tool is missing or fails.
        """

    def source_paths(self) -> Sequence[str]:
        """Files and folders of the package, relative to it, that determine code besides those of all backends."""


class Executor(Protocol):
    """The half of a backend that runs libraries."""

    #: form of a library's bytes, as manifests name it
    format: str
    #: whether times that are taken of kernels say how fast they are, so that tuning makes sense
    has_meaningful_times: bool

    def check_needs(self, needs: Needs) -> None:
        """Raises ValueError unless these are needs that this backend writes; they come from an untrusted file."""

    def requirements(self, needs: Needs) -> list[str]:
        """The needs in words."""

    def missing(self, needs: Needs) -> list[str]:
        """What this machine lacks to run a library itself, in words; empty where it runs."""

    def places(self, needs: Needs, emulation: Emulation) -> list[Place]:
        """Where a library with these needs runs, the preferred place first; emulators need not be installed."""

    def emulated_device(self, needs: Needs) -> str:
        """The device on which such a library can be emulated; "" where there is none."""

    def check_emulation(self, needs: Needs, name: str) -> None:
        """Raises EmulationError, which says why, where the library `name` cannot be emulated here."""

    def open(self, content: bytes | memoryview, needs: Needs, name: str, place: Place) -> KernelLibrary:
        """Opens a library.

        Args:
            content: what the compiler half linked.
            needs: of the library.
            name: what messages call the library.
            place: one of `places`.

        Raises:
            BundleError: it cannot be loaded, or has another interface.
            EmulationError: it cannot be emulated.
        """

    def identity(self) -> str:
        """What records call this machine: the processor, or the device and its driver."""
