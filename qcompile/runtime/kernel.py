"""Kernels and bundles as Python objects."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import IncompatibleMachineError, InvalidTensorError, UnknownNameError
from ..files import write_atomically
from ..spec import Operator, TensorRole
from ..spec.values import canonical_value
from . import container, cpu_features
from .library import Library
from .manifest import KernelEntry, LibraryEntry, Manifest, VariantEntry, parse

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
        required_features: CPU features that it needs.
    """

    target: str
    rule: str
    knobs: Mapping[str, int]
    knobs_source: str
    refused: tuple[tuple[str, str], ...]
    required_features: tuple[str, ...]

    def __str__(self) -> str:
        return self.target


class Kernel:
    """A compiled operator, called with its run-time tensors by name; from `qcompile.compile` or a bundle.

    Calls return the output, or a named tuple where there are several. A kernel may be called from several threads.
    """

    def __init__(self, bundle: Bundle, entry: KernelEntry):
        self._bundle = bundle
        self._entry = entry

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

    @property
    def outputs(self) -> tuple[TensorRole, ...]:
        """The outputs, with name, shape and dtype."""
        return self.operator.outputs

    @cached_property
    def constants(self) -> dict[str, Array]:
        """The tensors that were fixed at compile time (read-only arrays)."""
        return {
            name: np.frombuffer(self._bundle.blob(constant.blob), dtype=constant.dtype).reshape(constant.shape)
            for name, constant in self._entry.constants.items()
        }

    @cached_property
    def _chosen(self) -> VariantEntry:
        reasons = []
        for variant in self._entry.variants:
            library = self._bundle.manifest.libraries[variant.library]
            lacking = cpu_features.missing(library.architecture, library.required_features)
            if not lacking:
                return variant
            reasons.append(f"{library.target} needs {', '.join(lacking)}")
        raise IncompatibleMachineError(
            f"Kernel {self.name!r} was not compiled for this machine.",
            given="; ".join(reasons),
            remedy="compile it for this machine too: target='host' here, or the names that `qcompile targets` marks",
        )

    @property
    def variant(self) -> Variant:
        """The variant that runs on this machine.

        Raises:
            IncompatibleMachineError: none does.
        """
        return self._describe(self._chosen)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All variants, the most demanding first."""
        return tuple(self._describe(entry) for entry in self._entry.variants)

    def _describe(self, entry: VariantEntry) -> Variant:
        library = self._bundle.manifest.libraries[entry.library]
        return Variant(
            library.target, entry.rule, entry.knobs, entry.knobs_source, entry.refused, library.required_features
        )

    @property
    def workspace_bytes(self) -> int:
        """Scratch memory that a call in one thread takes."""
        return self._chosen.workspace_bytes

    def __call__(self, *, out: Any = None, num_threads: int | None = None, **tensors: Any) -> Any:
        """Runs the kernel.

        Args:
            out: array for the output, or a sequence of arrays for several: exactly the shape and dtype, C-contiguous,
                not overlapping an input. Default: new arrays.
            num_threads: default: the environment variable TVM_NUM_THREADS, else the number of cores.
            tensors: the run-time tensors; zero points may be left out (0).

        Returns:
            The output, or a named tuple of the outputs.

        Raises:
            InvalidTensorError: a wrong name, shape or dtype, or a tensor is missing.
            InvalidQuantizationError: a run-time scale, or the multiplier that follows from it, is no usable number.
            IncompatibleMachineError: the bundle has no variant for this machine.
            KernelError: the kernel reports a failure, such as lack of memory.
        """
        variant = self._chosen
        values = self._inputs(tensors)
        results = self._results(out, values)
        addresses = [_address(values[tensor.name]) if tensor.name in values else 0 for tensor in self.inputs]
        addresses += map(_address, results)
        self._bundle.library(variant.library).run(variant.index, addresses, _threads(num_threads))
        if len(results) == 1:
            return results[0]
        return self._results_type(*results)

    @cached_property
    def _results_type(self) -> Any:
        return namedtuple("Outputs", [tensor.name for tensor in self.outputs])  # noqa: PYI024 - names known here only

    @cached_property
    def _has_scales(self) -> bool:
        return any(tensor.role == "scale" for tensor in self.inputs)

    def _inputs(self, tensors: Mapping[str, Any]) -> dict[str, Array]:
        values: dict[str, Array] = {}
        for tensor in self.inputs:
            if tensor.name in tensors:
                values[tensor.name] = canonical_value(tensor, tensors[tensor.name])
            elif not tensor.optional:
                raise InvalidTensorError(
                    f"Kernel {self.name!r} is called without {tensor.name}.",
                    accepted=", ".join(map(str, self.inputs)),
                )
        for name in tensors:
            if name not in values:
                what = "is a constant of this kernel" if name in self._entry.constants else "is no tensor of it"
                raise InvalidTensorError(
                    f"Kernel {self.name!r} is called with {name!r}, which {what}.",
                    accepted=", ".join(map(str, self.inputs)),
                )
        if self._has_scales:
            self.operator.check_values({**self.constants, **values})
        return values

    def _results(self, out: Any, inputs: Mapping[str, Array]) -> list[Array]:
        if out is None:
            return [np.empty(tensor.shape, tensor.dtype) for tensor in self.outputs]
        given = [out] if isinstance(out, np.ndarray) else list(out) if isinstance(out, (list, tuple)) else None
        if given is None or len(given) != len(self.outputs):
            raise InvalidTensorError("out= must be an array for each output.", accepted=", ".join(map(str, self.outputs)))
        for array, tensor in zip(given, self.outputs, strict=True):
            usable = (
                isinstance(array, np.ndarray)
                and array.shape == tensor.shape
                and array.dtype == np.dtype(tensor.dtype)
                and array.flags.c_contiguous
                and array.flags.writeable
                and array.flags.aligned
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
        return given

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a bundle with this kernel alone.

        Raises:
            BundleError: the file cannot be written.
        """
        self._bundle.subset([self.name], single=True).save(path)

    def __repr__(self) -> str:
        return f"<Kernel {self.name!r}: {self.operator.name}>"


class Bundle:
    """Kernels of one or several targets: a mapping from names to kernels, in model order."""

    def __init__(self, content: bytes | memoryview, origin: str = "The bundle"):
        values, self._blobs = container.unpack(content, origin)
        self._content = content
        self.manifest: Manifest = parse(values, [len(blob) for blob in self._blobs], origin)
        self._kernels = {entry.name: Kernel(self, entry) for entry in self.manifest.kernels}
        self._aliases = {alias: entry.name for entry in self.manifest.kernels for alias in entry.aliases}
        self._libraries: dict[int, Library] = {}

    @property
    def names(self) -> list[str]:
        """Names of the kernels, in model order."""
        return list(self._kernels)

    @property
    def targets(self) -> list[str]:
        """Names of the targets that it was compiled for."""
        return [library.target for library in self.manifest.libraries]

    def __getitem__(self, name: str) -> Kernel:
        kernel = self._kernels.get(self._aliases.get(name, name))
        if kernel is None:
            known = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
            raise UnknownNameError("The bundle has no kernel of that name.", given=repr(name), accepted=known)
        return kernel

    def __contains__(self, name: object) -> bool:
        return name in self._kernels or name in self._aliases

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)

    def blob(self, number: int) -> memoryview:
        """The bytes of a blob."""
        return self._blobs[number]

    def library(self, number: int) -> Library:
        """A library, loaded when it is first needed."""
        if number not in self._libraries:
            entry = self.manifest.libraries[number]
            library = Library(self._blobs[entry.blob], f"target {entry.target}")
            for kernel in self.manifest.kernels:
                for variant in kernel.variants:
                    if variant.library == number and variant.index >= library.kernel_count:
                        raise UnknownNameError(
                            f"The library of target {entry.target} lacks kernel {kernel.name!r}.",
                            remedy="compile the bundle again",
                        )
            self._libraries[number] = library
        return self._libraries[number]

    def to_bytes(self) -> bytes:
        """The bundle's file."""
        return bytes(self._content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the bundle; an existing file is replaced only by a complete one.

        Raises:
            BundleError: the file cannot be written.
        """
        write_atomically(path, self.to_bytes(), "The bundle")

    def subset(self, names: Sequence[str], single: bool = False) -> Bundle:
        """A bundle of some of the kernels (with the whole libraries)."""
        chosen = [self[name]._entry for name in names]
        if len(chosen) == len(self.manifest.kernels) and single == self.manifest.single:
            return self
        kept: dict[int, int] = {}

        def keep(blob: int) -> int:
            return kept.setdefault(blob, len(kept))

        libraries = tuple(
            LibraryEntry(keep(entry.blob), entry.target, entry.architecture, entry.required_features)
            for entry in self.manifest.libraries
        )
        kernels = tuple(
            KernelEntry(
                entry.name,
                entry.aliases,
                entry.operator,
                {
                    name: type(constant)(keep(constant.blob), constant.dtype, constant.shape)
                    for name, constant in entry.constants.items()
                },
                entry.variants,
            )
            for entry in chosen
        )
        manifest = Manifest(self.manifest.producer, self.manifest.requantize, single, libraries, kernels)
        return Bundle(container.pack(manifest.to_dictionary(), [self._blobs[blob] for blob in kept]))

    def __repr__(self) -> str:
        return f"<Bundle of {len(self)} kernels for {', '.join(self.targets)}>"


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])  # much faster than array.ctypes


def _threads(num_threads: int | None) -> int:
    if num_threads is None:
        return 0
    if not isinstance(num_threads, (int, np.integer)) or isinstance(num_threads, bool) or num_threads < 1:
        raise InvalidTensorError("num_threads is wrong.", given=repr(num_threads), accepted="an integer of at least 1")
    return min(int(num_threads), 256)


def load(path: str | os.PathLike[str]) -> Kernel | Bundle:
    """Loads a bundle without any compiler code. What `Kernel.save` wrote gives the kernel, all else a Bundle.

    The manifest is parsed as untrusted data; the libraries are native code: load only bundles that you trust.

    Raises:
        BundleError: the file is missing, empty, truncated, damaged, foreign or of a newer format.
        IncompatibleMachineError: none of its targets runs on this machine.
    """
    bundle = load_bundle(path)
    lacking = {
        library.target: cpu_features.missing(library.architecture, library.required_features)
        for library in bundle.manifest.libraries
    }
    if all(lacking.values()):
        raise IncompatibleMachineError(
            f"The bundle {Path(path)} was not compiled for this machine.",
            given="; ".join(f"{target} needs {', '.join(needs)}" for target, needs in lacking.items()),
            remedy="compile it for this machine too: target='host' here, or a name that `qcompile targets` marks",
        )
    return next(iter(bundle)) if bundle.manifest.single else bundle


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Loads a bundle as a Bundle whatever it holds and wherever it runs: to look into it."""
    return Bundle(container.read_file(path), f"The bundle {Path(path)}")
