"""The facts of a CPU target: the table [cpu] of a target file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...errors import TargetFileError
from ...intrinsics.table import INSTRUCTIONS, Instruction
from ..fields import Field, read
from ..interface import Needs
from .emulation.interface import devices

#: architecture -> CPU features that a target may require, in the names of `features`
KNOWN_FEATURES: dict[str, tuple[str, ...]] = {
    "x86_64": (
        "sse2", "sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt",
        "movbe", "avxvnni", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512_bf16",
        "avx512_fp16", "avx512_vbmi2", "amx_tile", "amx_int8",
    ),
    "aarch64": ("fp", "neon", "asimdhp", "dotprod", "i8mm", "bf16", "sve", "sve2", "svei8mm", "atomics"),
}  # fmt: skip


@dataclass(frozen=True)
class CpuFacts:
    """What schedules and the code generator must know of a CPU.

    Args:
        architecture: machine name as in `uname -m`.
        required_features: CPU features without which the kernels must not run, as named in `features`.
        vector_bits: width of an integer vector.
        vector_registers: vectors that the registers hold.
        instructions: names of the instructions of `intrinsics.table` that schedules may use; of several with equal
            operands the first is taken.
        emulated_cpu: model of a CPU with all required features that is emulated where they are missing; "" where none
            is.
        products_in_flight: multiplying instructions whose results are awaited at a time: latency x throughput.
        filter_load_cost: share of the time of a multiply-accumulate that loading a vector of the filter adds.
        input_load_cost: the same, of an input that all lanes share.
    """

    architecture: str
    required_features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    instructions: tuple[str, ...]
    emulated_cpu: str
    products_in_flight: int
    filter_load_cost: float
    input_load_cost: float

    @cached_property
    def needs(self) -> Needs:
        """What a machine must have to run kernels of the target."""
        return {
            "architecture": self.architecture,
            "features": list(self.required_features),
            "emulated_cpu": self.emulated_cpu,
        }

    @property
    def int32_lanes(self) -> int:
        """int32 elements in one vector."""
        return self.vector_bits // 32

    def instruction(self, data: str, weights: str, largest_weight: int | None = None) -> Instruction | None:
        """The first of the target's instructions with these operand types that is exact; None where there is none.

        Args:
            data: element type of the shared operand.
            weights: element type of the other operand.
            largest_weight: the largest absolute value of a weight; None where nothing is known of them.
        """
        for name in self.instructions:
            row = INSTRUCTIONS[name]
            is_exact = row.largest_weight is None or (
                largest_weight is not None and largest_weight <= row.largest_weight
            )
            if (row.data, row.weights) == (data, weights) and is_exact:
                return row
        return None


_FIELDS = {
    "architecture": Field(str, accepted=tuple(KNOWN_FEATURES)),
    "required_features": Field(list),
    "vector_bits": Field(int, accepted=(128, 256, 512)),
    "vector_registers": Field(int, 16, accepted=(16, 32)),
    "instructions": Field(list, ()),
    "emulated_cpu": Field(str, ""),
    "products_in_flight": Field(int, 10, low=1, high=64),
    "filter_load_cost": Field(float, 0.21, low=0, high=16),
    "input_load_cost": Field(float, 0.16, low=0, high=16),
}
#: fields that people look for at the top level of a target file
MOVED_FIELDS = ("architecture", "required_features", "vector_bits", "vector_registers", "emulated_cpu")


def parse(table: Mapping[str, Any], origin: str) -> CpuFacts:
    """The facts of the table [cpu].

    Raises:
        TargetFileError: a field is unknown, missing, of the wrong type or does not fit the others.
    """
    facts = CpuFacts(**read(table, _FIELDS, origin))
    known = KNOWN_FEATURES[facts.architecture]
    _check(facts.required_features, known, f"{origin}: unknown CPU feature.")
    fitting = [name for name, row in INSTRUCTIONS.items() if row.vector_bits == facts.vector_bits]
    _check(
        facts.instructions, fitting, f"{origin}: instructions has an entry that is unknown for vectors of "
        f"{facts.vector_bits} bits.",
    )  # fmt: skip
    for name in facts.instructions:
        completed_by = INSTRUCTIONS[name].completed_by
        if completed_by and completed_by not in facts.instructions:
            raise TargetFileError(
                f"{origin}: {name} needs {completed_by}, which instructions lacks.", given=", ".join(facts.instructions)
            )
    if facts.emulated_cpu:
        problem = f"{origin}: emulated_cpu is not a CPU that can be emulated."
        _check((facts.emulated_cpu,), devices(facts.architecture), problem)
    return facts


def _check(given: tuple[str, ...], accepted: Any, problem: str) -> None:
    for entry in given:
        if entry not in accepted:
            raise TargetFileError(problem, given=repr(entry)[:120], accepted=", ".join(accepted) or "none")
