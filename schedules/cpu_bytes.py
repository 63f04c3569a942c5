"""The rule for CPUs that multiply bytes and add pairs of products in int16 (x86's pmaddubsw), where that is exact.

The input stays in bytes, and the filter too: half the memory of int16, and a third fewer instructions. The instruction
saturates, so that the rule applies only where the constant filter's values prove that no sum can: weights within -64
to 64, as quantization to seven bits makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..backends.interface import Hardware
from ..constants.facts import Facts
from ..errors import NotApplicable
from ..spec import Convolution, MatrixMultiply, Operator
from . import cpu_accumulate
from .cpu_accumulate import KNOBS, check_wide
from .cpu_tile import Limits, form_of

if TYPE_CHECKING:  # TVM takes seconds to import, and choosing a rule does not need it
    import tvm

    from ..compute.computation import Computation

name = "cpu_bytes"
version = 2
knobs = {knob: limits for knob, limits in KNOBS.items() if knob != "raw_rows"}
#: two products of a uint8 with such weights fit int16
LARGEST_WEIGHT = 64
_QUADS = 4


def check(operator: Operator, hardware: Hardware, facts: Facts) -> None:
    """Refuses what has no sums, a CPU without the instruction, narrow groups, and weights that may saturate."""
    check_wide(operator, hardware.facts.int32_lanes)
    if hardware.facts.instruction("uint8", "int8", LARGEST_WEIGHT) is None:
        raise NotApplicable(f"{hardware.name} has no instruction that multiplies bytes and adds pairs")
    if facts.largest_weight is None:
        raise NotApplicable("it is exact for some weights only, and these are not constant")
    if facts.largest_weight > LARGEST_WEIGHT:
        raise NotApplicable(
            f"its sums could saturate: weights reach {facts.largest_weight}, and it is exact up to {LARGEST_WEIGHT}"
        )


def space(operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
    """All shapes of the register tile."""
    assert isinstance(operator, (Convolution, MatrixMultiply))
    return cpu_accumulate.space(operator, hardware.facts.int32_lanes)


def form(operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
    """Groups of four input channels, panels of several vectors."""
    return form_of(operator, hardware.facts.int32_lanes, _QUADS, knobs, Limits.costs_of(hardware.facts), raw_data=True)


def schedule(
    operator: Operator, hardware: Hardware, computation: Computation, form: Any, knobs: Mapping[str, int]
) -> tvm.IRModule:
    """Schedules the named blocks of a computation."""
    import tvm
    from tvm.s_tir import Schedule

    from ..intrinsics import multiply_add_bytes

    assert isinstance(operator, (Convolution, MatrixMultiply))
    instruction = hardware.facts.instruction("uint8", "int8", LARGEST_WEIGHT)
    intrinsic = multiply_add_bytes.register(instruction)
    state = Schedule(tvm.IRModule({"main": computation.function}))
    cpu_accumulate.schedule_accumulate(state, operator, form, knobs, intrinsic)
    return state.mod
