"""The manifest of a bundle: what is in it, parsed from untrusted JSON with limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..backends import BACKENDS, executor_of
from ..errors import BundleError, QCompileError
from ..spec import Operator
from ..spec.serialization import from_dictionary
from ..spec.tensor import DTYPE_CODES

#: arithmetics of the last stage that this version knows
REQUANTIZE_VARIANTS = ("float32",)
MAXIMUM_KERNELS = 100_000
MAXIMUM_TEXT = 4096
MAXIMUM_NEEDS = 16


@dataclass(frozen=True)
class ConstantEntry:
    """A constant tensor of a kernel, as it was given at compile time."""

    blob: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LibraryEntry:
    """A library with the kernels of one target, in the table's order.

    Args:
        blob: its bytes.
        target: the target's name.
        kind: the backend that runs it, a key of `backends.BACKENDS`.
        needs: what a machine must have to run it, in the backend's terms.
        format: form of its bytes.
    """

    blob: int
    target: str
    kind: str
    needs: Mapping[str, Any]
    format: str


@dataclass(frozen=True)
class VariantEntry:
    """A kernel compiled for one target.

    Args:
        library: index of its library.
        index: its number in the library's table.
        rule, rule_version, knobs: how it was scheduled.
        knobs_source: where the knobs came from.
        refused: (rule, reason) of the preferred rules that did not apply.
        workspace_bytes: scratch memory of a call in one thread.
    """

    library: int
    index: int
    rule: str
    rule_version: int
    knobs: Mapping[str, int]
    knobs_source: str
    refused: tuple[tuple[str, str], ...]
    workspace_bytes: int


@dataclass(frozen=True)
class KernelEntry:
    """A kernel: an operator with some of its tensors fixed.

    Args:
        name: its name in the bundle.
        aliases: further names that it answers to (nodes of a model that share it).
        operator: the operator.
        constants: tensors that are fixed.
        variants: the preferred target first.
    """

    name: str
    aliases: tuple[str, ...]
    operator: Operator
    constants: Mapping[str, ConstantEntry]
    variants: tuple[VariantEntry, ...]

    def with_blobs(self, number_of: Callable[[int], int]) -> KernelEntry:
        """The same kernel, its constants in blobs of other numbers."""
        constants = {name: replace(entry, blob=number_of(entry.blob)) for name, entry in self.constants.items()}
        return replace(self, constants=constants)


@dataclass(frozen=True)
class Manifest:
    """Everything about a bundle but its bytes.

    Args:
        producer: versions of what made it.
        requantize: the arithmetic of the last stage.
        single: whether it is one kernel by itself, which `load` then returns.
        libraries, kernels: its content.
    """

    producer: Mapping[str, str]
    requantize: str
    single: bool
    libraries: tuple[LibraryEntry, ...]
    kernels: tuple[KernelEntry, ...]

    def to_dictionary(self) -> dict[str, Any]:
        """Plain JSON values of the present version of the format; `parse` reads them."""
        return {
            "producer": dict(self.producer),
            "requantize": self.requantize,
            "single": self.single,
            "libraries": [asdict(library) for library in self.libraries],
            "kernels": [
                {
                    "name": kernel.name,
                    "aliases": list(kernel.aliases),
                    "operator": kernel.operator.to_dictionary(),
                    "constants": {name: asdict(entry) for name, entry in kernel.constants.items()},
                    "variants": [asdict(variant) for variant in kernel.variants],
                }
                for kernel in self.kernels
            ],
        }


def parse(values: Mapping[str, Any], blob_sizes: list[int], origin: str, version: int) -> Manifest:
    """The manifest of plain JSON values.

    Args:
        values: what `Manifest.to_dictionary` wrote, from an untrusted file.
        blob_sizes: bytes of each blob.
        origin: the file, for messages.
        version: of the file's format.

    Raises:
        BundleError: a field is missing, of the wrong type or out of range, or an operator is impossible.
    """
    try:
        reader = _Reader(blob_sizes, version)
        libraries = tuple(reader.library(entry) for entry in _list(values, "libraries", 64))
        kernels = tuple(reader.kernel(entry, len(libraries)) for entry in _list(values, "kernels", MAXIMUM_KERNELS))
        producer = {_text(key): _text(value) for key, value in _mapping(values, "producer", 16).items()}
        names = [name for kernel in kernels for name in (kernel.name, *kernel.aliases)]
        if len(set(names)) != len(names):
            raise ValueError("two kernels have the same name")
        single = values["single"]
        if not isinstance(single, bool) or (single and len(kernels) != 1):
            raise ValueError("single is invalid")
        if values["requantize"] not in REQUANTIZE_VARIANTS:
            raise ValueError(f"requantize {str(values['requantize'])[:80]!r} is unknown")
        return Manifest(producer, values["requantize"], single, libraries, kernels)
    except (KeyError, TypeError, ValueError, IndexError, QCompileError) as error:
        is_missing = isinstance(error, KeyError) and not isinstance(error, QCompileError)
        detail = f"{error} is missing" if is_missing else error
        raise BundleError(f"{origin} has an invalid manifest: {detail}", remedy="compile the bundle again") from error


def _of_version_1(values: Mapping[str, Any]) -> tuple[str, dict[str, Any], str]:
    """Kind, needs and format of a library in the first version of the format, which knew CPUs alone."""
    features = [_text(feature) for feature in _list(values, "required_features", 256)]
    needs = {
        "architecture": _text(values["architecture"]),
        "features": features,
        "emulated_cpu": _text(values.get("emulated_cpu", "")),  # the first bundles lack it
    }
    return "cpu", needs, "elf"


class _Reader:
    def __init__(self, blob_sizes: list[int], version: int):
        self._blob_sizes = blob_sizes
        self._version = version

    def library(self, values: Mapping[str, Any]) -> LibraryEntry:
        blob, target = self._blob(values), _text(values["target"])
        if self._version == 1:
            return LibraryEntry(blob, target, *_of_version_1(values))
        kind = _text(values["kind"])
        needs = _mapping(values, "needs", MAXIMUM_NEEDS)
        if kind in BACKENDS:  # a later version may know more kinds; their libraries do not run here
            executor_of(kind).check_needs(needs)
        return LibraryEntry(blob, target, kind, needs, _text(values["format"]))

    def kernel(self, values: Mapping[str, Any], library_count: int) -> KernelEntry:
        operator = from_dictionary(_mapping(values, "operator", 64))
        constants = {
            _text(name): self.constant(entry, name, operator)
            for name, entry in _mapping(values, "constants", 64).items()
        }
        variants = tuple(self.variant(entry, library_count) for entry in _list(values, "variants", 64))
        if not variants:
            raise ValueError("a kernel without variants")
        aliases = tuple(_text(name) for name in _list(values, "aliases", MAXIMUM_KERNELS))
        return KernelEntry(_text(values["name"]), aliases, operator, constants, variants)

    def constant(self, values: Mapping[str, Any], name: str, operator: Operator) -> ConstantEntry:
        tensor = operator.tensor(name)
        shape = tuple(_integer(size, 0, 2**31) for size in _list(values, "shape", 16))
        if shape != tensor.shape or values["dtype"] != tensor.dtype or tensor.dtype not in DTYPE_CODES:
            raise ValueError(f"constant {name} does not fit its operator")
        blob = self._blob(values)
        item_bytes = {"8": 1, "16": 2, "32": 4}["".join(filter(str.isdigit, tensor.dtype))]
        if self._blob_sizes[blob] != math.prod(shape) * item_bytes:
            raise ValueError(f"constant {name} has the wrong number of bytes")
        return ConstantEntry(blob, tensor.dtype, shape)

    def variant(self, values: Mapping[str, Any], library_count: int) -> VariantEntry:
        refused = []
        for pair in _list(values, "refused", 64):
            rule, reason = pair
            refused.append((_text(rule), _text(reason)))
        knobs = {
            _text(knob): _integer(value, -(2**63), 2**63) for knob, value in _mapping(values, "knobs", 256).items()
        }
        return VariantEntry(
            _integer(values["library"], 0, library_count - 1),
            _integer(values["index"], 0, MAXIMUM_KERNELS),
            _text(values["rule"]),
            _integer(values["rule_version"], 0, 2**31),
            knobs,
            _text(values["knobs_source"]),
            tuple(refused),
            _integer(values["workspace_bytes"], 0, 2**63),
        )

    def _blob(self, values: Mapping[str, Any]) -> int:
        return _integer(values["blob"], 0, len(self._blob_sizes) - 1)


def _typed(value: Any, kind: type, check: Callable[[Any], bool], what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool) or not check(value):
        raise ValueError(f"{what} expected, got {str(value)[:80]!r}")
    return value


def _text(value: Any) -> str:
    return str(_typed(value, str, lambda text: len(text) <= MAXIMUM_TEXT, "a short string"))


def _integer(value: Any, low: int, high: int) -> int:
    return int(_typed(value, int, lambda number: low <= number <= high, f"an integer of {low} to {high}"))


def _list(values: Mapping[str, Any], name: str, most: int) -> list[Any]:
    entries: list[Any] = _typed(values[name], list, lambda entry: len(entry) <= most, f"{name}: a list")
    return entries


def _mapping(values: Mapping[str, Any], name: str, most: int) -> dict[str, Any]:
    entries: dict[str, Any] = _typed(values[name], dict, lambda entry: len(entry) <= most, f"{name}: an object")
    return entries
