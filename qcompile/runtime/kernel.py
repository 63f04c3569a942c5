"""A compiled kernel as a Python object."""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backends.interface import MAXIMUM_THREADS, Emulation, KernelLibrary, Place, RunOptions
from ..bundle.manifest import KernelEntry, LibraryEntry, VariantEntry
from ..errors import InvalidTensorError, UnknownNameError
from ..spec import Operator, TensorRole
from ..spec.values import canonical_value
from ..system.files import write_atomically
from .content import Content
from .places import check_emulation, parse_emulate
from .selection import Selected, runnable, select

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Variant:
    """The compiled form of a kernel that runs here.

    Args:
        target: name of the target.
        rule: the schedule rule.
        knobs: its knobs.
        knobs_source: where the knobs came from.
        refused: (rule, reason) of the preferred rules that did not apply.
        kind: the kind of hardware that it is for.
        needs: what a machine must have to run it natively.
        place: where it runs here; None where it does not.
    """

    target: str
    rule: str
    knobs: Mapping[str, int]
    knobs_source: str
    refused: tuple[tuple[str, str], ...]
    kind: str
    needs: Mapping[str, Any]
    place: Place | None = None

    @property
    def emulated_cpu(self) -> str:
        """The device that is emulated to run it here; "" where it runs natively, or not at all."""
        return self.place.device if self.place is not None and self.place.is_emulated else ""

    def __str__(self) -> str:
        return self.target


class Kernel:
    """A compiled operator, called with its run-time tensors by name; from `qcompile.compile` or a bundle.

    Calls return the output, or a named tuple where there are several. A kernel may be called from several threads.
    """

    def __init__(
        self, content: Content, entry: KernelEntry, target: str | None = None, emulation: Emulation = Emulation.NEVER
    ):
        self._content = content
        self._entry = entry
        self._target = target
        self._emulation = emulation

    @property
    def name(self) -> str:
        """Its name in the bundle."""
        return self._entry.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further names that it answers to."""
        return self._entry.aliases

    @property
    def operator(self) -> Operator:
        """The operator's description."""
        return self._entry.operator

    @cached_property
    def inputs(self) -> tuple[TensorRole, ...]:
        """The run-time tensors, with name, shape and dtype, in the order of the C interface."""
        return tuple(tensor for tensor in self.operator.tensors if tensor.name not in self._entry.constants)

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """The outputs, with name, shape and dtype."""
        return self.operator.outputs

    @cached_property
    def _input_layouts(self) -> tuple[tuple[TensorRole, np.dtype[Any], tuple[int, ...]], ...]:
        return tuple((tensor, np.dtype(tensor.dtype), tensor.shape) for tensor in self.inputs)

    @cached_property
    def _output_layouts(self) -> tuple[tuple[TensorRole, np.dtype[Any], tuple[int, ...]], ...]:
        return tuple((tensor, np.dtype(tensor.dtype), tensor.shape) for tensor in self.outputs)

    @cached_property
    def constants(self) -> dict[str, Array]:
        """The tensors that were fixed at compile time (read-only arrays)."""
        return {
            name: np.frombuffer(self._content.blob(constant.blob), dtype=constant.dtype).reshape(constant.shape)
            for name, constant in self._entry.constants.items()
        }

    @property
    def _pairs(self) -> list[tuple[VariantEntry, LibraryEntry]]:
        """The variants with their libraries, of the chosen target alone if there is one."""
        libraries = self._content.manifest.libraries
        pairs = [(variant, libraries[variant.library]) for variant in self._entry.variants]
        return [pair for pair in pairs if self._target in (None, pair[1].target)]

    @cached_property
    def _chosen(self) -> Selected:
        return select(self.name, self._pairs, self._emulation, self._target)

    @cached_property
    def _library(self) -> KernelLibrary:
        return self._content.library(self._chosen.variant.library, self._chosen.place)

    @property
    def variant(self) -> Variant:
        """The variant that runs on this machine.

        Raises:
            IncompatibleMachineError: none does.
            EmulationError: it would be emulated, and the bundle does not say on which CPU.
        """
        return self._describe(self._chosen.variant)

    def check_place(self) -> None:
        """Raises before a call would, if the kernel is to be emulated and its emulator is not installed.

        Raises:
            IncompatibleMachineError: no variant runs on this machine.
            EmulationError: says what is missing.
        """
        if self._chosen.place.is_emulated:
            check_emulation(self._chosen.library)

    @property
    def runnable_targets(self) -> list[str]:
        """Targets of the variants that run on this machine, the one that calls take first."""
        return [one.library.target for one in runnable(self._pairs, self._emulation)]

    def on(self, target: str) -> Kernel:
        """The kernel with its variant for that target, even where a better one would run.

        Raises:
            UnknownNameError: it was not compiled for that target.
        """
        known = [variant.target for variant in self.variants]
        if target not in known:
            raise UnknownNameError(
                f"Kernel {self.name!r} was not compiled for that target.", given=repr(target), accepted=", ".join(known)
            )
        return Kernel(self._content, self._entry, target, self._emulation)

    def emulated(self, *, always: bool = False) -> Kernel:
        """The kernel with emulation allowed, for the variants that this machine cannot run. See docs/emulation.md.

        Args:
            always: emulates also those that it can run.
        """
        emulation = Emulation.ALWAYS if always else Emulation.WHERE_MISSING
        return Kernel(self._content, self._entry, self._target, emulation)

    @property
    def instructions(self) -> int:
        """How many instructions the last call from this thread executed; 0 where it was not emulated."""
        return self._library.instructions

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All variants, the preferred target first."""
        return tuple(self._describe(entry) for entry in self._entry.variants)

    def _describe(self, entry: VariantEntry) -> Variant:
        library = self._content.manifest.libraries[entry.library]
        found = runnable([(entry, library)], self._emulation)
        return Variant(
            library.target, entry.rule, entry.knobs, entry.knobs_source, entry.refused, library.kind, library.needs,
            found[0].place if found else None,
        )  # fmt: skip

    @property
    def workspace_bytes(self) -> int:
        """Scratch memory that a call in one thread takes."""
        return self._chosen.variant.workspace_bytes

    def __call__(self, *, out: Any = None, num_threads: Any = None, **tensors: Any) -> Any:
        """Runs the kernel.

        Args:
            out: array for the output, or a sequence of arrays for several: exactly the shape and dtype, C-contiguous,
                not overlapping an input. Default: new arrays.
            num_threads: int; default: the environment variable QCOMPILE_NUM_THREADS, else the number of cores.
            tensors: the run-time tensors; zero points may be left out (0).

        Returns:
            The output, or a named tuple of the outputs.

        Raises:
            InvalidTensorError: a wrong name, shape or dtype, or a tensor is missing.
            InvalidQuantizationError: a run-time scale, or the multiplier that follows from it, is not a usable number.
            IncompatibleMachineError: the bundle has no variant for this machine.
            KernelError: the kernel reports a failure, such as lack of memory.
            EmulationError: it cannot be emulated, or does in emulation what it must not do.
        """
        index = self._chosen.variant.index
        values = self._inputs(tensors)
        results = self._results(out, values)
        inputs = [values.get(tensor.name) for tensor in self.inputs]
        self._library.run(index, inputs, results, _options(num_threads))
        if len(results) == 1:
            return results[0]
        return self._results_type(*results)

    def time(self, *, out: Any, num_threads: Any = None, **tensors: Any) -> float:
        """Runs the kernel once and returns the seconds that it took, by the device's clock where it has one.

        Args:
            out: as in a call.
            num_threads: as in a call.
            tensors: the run-time tensors.

        Raises:
            QCompileError: as in a call.
        """
        values = self._inputs(tensors)
        inputs = [values.get(tensor.name) for tensor in self.inputs]
        seconds = self._library.time(
            self._chosen.variant.index, inputs, self._results(out, values), _options(num_threads)
        )
        if seconds is None:
            start = time.perf_counter()
            self(out=out, num_threads=num_threads, **tensors)
            seconds = time.perf_counter() - start
        return seconds

    @cached_property
    def _results_type(self) -> Any:
        return namedtuple("Outputs", [tensor.name for tensor in self.outputs])

    @cached_property
    def _has_checked_values(self) -> bool:
        return any(tensor.role in ("scale", "range") for tensor in self.inputs)

    def _inputs(self, tensors: Mapping[str, Any]) -> dict[str, Array]:
        values: dict[str, Array] = {}
        missing = None
        for tensor, dtype, shape in self._input_layouts:
            if tensor.name in tensors:
                value = tensors[tensor.name]
                is_canonical = (
                    type(value) is np.ndarray
                    and value.dtype is dtype
                    and value.shape == shape
                    and value.flags.c_contiguous
                )
                values[tensor.name] = value if is_canonical else canonical_value(tensor, value)
            elif not tensor.optional:
                missing = missing or f"without {tensor.name}"
        if len(values) < len(tensors):
            name = next(name for name in tensors if name not in values)
            what = "is a constant of this kernel" if name in self._entry.constants else "is not one of its tensors"
            missing = f"with {name!r}, which {what}"
        if missing is not None:
            raise InvalidTensorError(
                f"Kernel {self.name!r} was called {missing}.", accepted=", ".join(map(str, self.inputs))
            )
        if self._has_checked_values:
            self.operator.check_values({**self.constants, **values})
        return values

    def _results(self, out: Any, inputs: Mapping[str, Array]) -> list[Array]:
        if out is None:
            return [np.empty(shape, dtype) for _, dtype, shape in self._output_layouts]
        given = [out] if isinstance(out, np.ndarray) else list(out) if isinstance(out, (list, tuple)) else None
        if given is None or len(given) != len(self.outputs):
            accepted = ", ".join(map(str, self.outputs))
            raise InvalidTensorError("out= must be an array for each output.", accepted=accepted)
        for array, (tensor, wanted, needed) in zip(given, self._output_layouts, strict=True):
            usable = (
                isinstance(array, np.ndarray)
                and (array.dtype is wanted or array.dtype == wanted)
                and array.shape == needed
                and array.flags.carray  # C-contiguous, aligned and writeable
            )
            if not usable:
                shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", type(array).__name__)
                raise InvalidTensorError(
                    f"out= does not fit {tensor.name}.",
                    given=f"{dtype}{list(shape) if shape is not None else ''}",
                    accepted=f"{tensor}, C-contiguous and writeable",
                )
            for name, value in inputs.items():
                if np.may_share_memory(array, value):
                    raise InvalidTensorError(f"out= overlaps the input {name}.", remedy="pass another array")
        for position, array in enumerate(given[1:], start=1):
            if any(np.may_share_memory(array, other) for other in given[:position]):
                raise InvalidTensorError("out= has arrays that overlap each other.", remedy="pass separate arrays")
        return given

    def __reduce__(self) -> Any:
        return _restore, (bytes(self._content.bytes), self.name, self._target, self._emulation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a bundle with this kernel alone.

        Raises:
            FileWriteError: the file cannot be written.
        """
        write_atomically(path, self._content.subset([self._entry], single=True), "The bundle")

    def __repr__(self) -> str:
        return f"<Kernel {self.name!r}: {self.operator.name}>"


def _restore(
    content: bytes, name: str, target: str | None, emulation: Emulation | bool | str = Emulation.NEVER
) -> Kernel:
    """A kernel that was pickled or copied, with its whole bundle."""
    restored = Content(content, "The pickled kernel")
    entry = next(entry for entry in restored.manifest.kernels if entry.name == name)
    return Kernel(restored, entry, target, parse_emulate(emulation))


_DEFAULT_OPTIONS = RunOptions()


def _options(num_threads: Any) -> RunOptions:
    if num_threads is None:
        return _DEFAULT_OPTIONS
    if not isinstance(num_threads, (int, np.integer)) or isinstance(num_threads, bool) or num_threads < 1:
        raise InvalidTensorError(
            "Invalid value for num_threads=.", given=repr(num_threads), accepted="an integer of at least 1"
        )
    return RunOptions(min(int(num_threads), MAXIMUM_THREADS))
