"""A whole second backend in one page: its compiler stores operators, its executor computes them with NumPy.

It shows what a kind of hardware costs, and that everything else takes it as it takes any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from qcompile.backends.interface import (
    Code,
    Emulation,
    Hardware,
    KernelLibrary,
    KernelTable,
    LibraryArgument,
    Needs,
    Place,
    RunOptions,
)
from qcompile.compute.form import ElementwiseForm
from qcompile.constants.facts import Facts
from qcompile.errors import BundleError, QCompileError
from qcompile.reference import evaluate
from qcompile.schedules.cpu_tile import Limits, form_of
from qcompile.spec import Convolution, MatrixMultiply, Operator
from qcompile.spec.serialization import from_dictionary

KIND = "reference"
RULE = "reference_plain"
STAGES = ("computed", "scheduled", "notes")
TARGET = f"""
name = "abacus"
description = "computes with NumPy"
kind = "{KIND}"
preference = 1
rules = ["{RULE}"]

[{KIND}]
beads = 10

[target]
kind = "llvm"
"""


@dataclass(frozen=True)
class ToyFacts:
    """The table [reference] of a target file."""

    beads: int

    @property
    def needs(self) -> Needs:
        """What a machine must have."""
        return {"beads": self.beads}


class ToyCompiler:
    """Stores operators."""

    def obstacles(self, hardware: Hardware) -> list[QCompileError]:
        """None."""
        return []

    def prepare(self, function: Any, hardware: Hardware) -> Any:
        """Nothing is to be said in other terms."""
        return function

    def generate(self, module: Any, symbol: str, hardware: Hardware, wanted: Sequence[str] = ()) -> Code:
        """No code: the table knows the operator."""
        texts = {"scheduled": str(module), "notes": f"{symbol} moves {hardware.facts.beads} beads"}
        return Code(symbol, symbol.encode(), 0, texts={stage: texts[stage] for stage in wanted})

    def link(self, table: KernelTable, codes: Mapping[str, Code], hardware: Hardware) -> bytes:
        """The operators and their constants as JSON."""
        kernels = [
            {
                "operator": kernel.operator.to_dictionary(),
                "constants": {name: np.asarray(value).tolist() for name, value in kernel.constants.items()},
            }
            for kernel in table
        ]
        return json.dumps(kernels).encode()

    def source_paths(self) -> Sequence[str]:
        """Nothing in the package."""
        return ()


class ToyLibrary:
    """Runs what was stored."""

    instructions = 0

    def __init__(self, content: bytes):
        self._kernels = [
            (from_dictionary(entry["operator"]), entry["constants"]) for entry in json.loads(bytes(content))
        ]
        self.kernel_count = len(self._kernels)
        self.clock = 0.0

    def arguments(self, index: int) -> list[LibraryArgument]:
        """The tensors that are not constant, and the outputs."""
        operator, constants = self._kernels[index]
        tensors = [tensor for tensor in operator.tensors if tensor.name not in constants]
        return [
            LibraryArgument(tensor.name, tensor.dtype, tensor.shape, tensor.optional)
            for tensor in (*tensors, *operator.outputs)
        ]

    def run(self, index: int, inputs: Sequence[Any], outputs: Sequence[Any], options: RunOptions) -> None:
        """Computes with the reference."""
        operator, constants = self._kernels[index]
        values = {name: np.asarray(value, operator.tensor(name).dtype) for name, value in constants.items()}
        names = [tensor.name for tensor in operator.tensors if tensor.name not in constants]
        values |= {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
        for output, result in zip(outputs, evaluate(operator, values).values(), strict=True):
            output[...] = result

    def time(self, index: int, inputs: Sequence[Any], outputs: Sequence[Any], options: RunOptions) -> float | None:
        """The device's own clock: every call takes a second."""
        self.run(index, inputs, outputs, options)
        return 1.0


class ToyExecutor:
    """Opens what was stored."""

    format = "json"
    has_meaningful_times = False
    #: what the machine has
    beads = 100

    def check_needs(self, needs: Needs) -> None:
        """Beads alone."""
        if set(needs) != {"beads"} or type(needs["beads"]) is not int:
            raise ValueError("needs must have a number of beads")

    def requirements(self, needs: Needs) -> list[str]:
        """The beads."""
        return [f"{needs['beads']} beads"]

    def missing(self, needs: Needs) -> list[str]:
        """The beads that are not there."""
        return [f"{needs['beads'] - self.beads} more beads"] if needs["beads"] > self.beads else []

    def places(self, needs: Needs, emulation: Emulation) -> list[Place]:
        """The machine's own abacus."""
        return [] if self.missing(needs) else [Place("abacus")]

    def emulated_device(self, needs: Needs) -> str:
        """None."""
        return ""

    def check_emulation(self, needs: Needs, name: str) -> None:
        """There is nothing to emulate."""

    def open(self, content: bytes | memoryview, needs: Needs, name: str, place: Place) -> KernelLibrary:
        """Reads the operators."""
        try:
            return ToyLibrary(bytes(content))
        except ValueError as error:
            raise BundleError(f"The library of {name} is not JSON.") from error

    def identity(self) -> str:
        """The machine."""
        return f"an abacus of {self.beads} beads"


class ToyRule(ModuleType):
    """A rule that leaves computations as they are."""

    name = RULE
    version = 1
    knobs: Mapping[str, tuple[int, int, int]] = {}

    def check(self, operator: Operator, hardware: Hardware, facts: Facts) -> None:
        """Applies always."""

    def space(self, operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
        """Nothing to choose."""
        return {}

    def form(self, operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
        """Any that the tensor expressions know."""
        if isinstance(operator, (Convolution, MatrixMultiply)):
            return form_of(operator, 4, 1, {"tile": 1, "vectors": 1, "accumulators": 1}, Limits(0.2, 0.2))
        return ElementwiseForm(4)

    def schedule(
        self, operator: Operator, hardware: Hardware, computation: Any, form: Any, knobs: Mapping[str, int]
    ) -> Any:
        """The computation as it is."""
        import tvm

        return tvm.IRModule({"main": computation.function})


compiler = ToyCompiler()
executor = ToyExecutor()


def parse(table: Mapping[str, Any], origin: str) -> ToyFacts:
    """The facts of the table [reference]."""
    return ToyFacts(table["beads"])
