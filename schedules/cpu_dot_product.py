"""The rule for CPUs that multiply four uint8 by four int8 and add the products to an int32 (x86's vpdpbusd).

The input stays in codes of one byte, and the filter too; nothing saturates, so that it applies to all weights. Zero
points are taken into account afterwards. Where the constant filter proves that it fits int8 without its zero point, the
sums of the data are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..backends.interface import Hardware
from ..constants.facts import Facts
from ..errors import NotApplicable
from ..spec import Convolution, MatrixMultiply, Operator
from . import cpu_accumulate
from .cpu_accumulate import BY_SHAPE, KNOBS, check_wide
from .cpu_tile import Limits, form_of

if TYPE_CHECKING:  # TVM takes seconds to import, and choosing a rule does not need it
    import tvm

    from ..compute.computation import Computation

name = "cpu_dot_product"
version = 1
knobs = {
    **{knob: limits for knob, limits in KNOBS.items() if knob != "raw_rows"},
    "accumulators": (12, 1, 28),
    "positions_first": (BY_SHAPE, 0, BY_SHAPE),
    "unroll": (4, 1, 16),
}
_QUADS = 4


def check(operator: Operator, hardware: Hardware, facts: Facts) -> None:
    """Refuses what has no sums, a CPU without the instruction, and narrow groups."""
    check_wide(operator, hardware.facts.int32_lanes)
    if hardware.facts.instruction("uint8", "int8") is None:
        raise NotApplicable(f"{hardware.name} has no instruction that multiplies and adds four bytes")


def space(operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
    """All shapes of the register tile."""
    assert isinstance(operator, (Convolution, MatrixMultiply))
    return cpu_accumulate.space(operator, hardware.facts.int32_lanes)


def form(operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
    """Groups of four input channels, panels of several vectors."""
    limits = Limits.of(hardware.facts)
    return form_of(
        operator,
        hardware.facts.int32_lanes,
        _QUADS,
        knobs,
        limits,
        raw_data=True,
        raw_weights=not facts.weights_fit_int8,
    )


def schedule(
    operator: Operator, hardware: Hardware, computation: Computation, form: Any, knobs: Mapping[str, int]
) -> tvm.IRModule:
    """Schedules the named blocks of a computation."""
    import tvm
    from tvm.s_tir import Schedule

    from ..intrinsics import dot_product

    assert isinstance(operator, (Convolution, MatrixMultiply))
    intrinsic = dot_product.register(hardware.facts.instruction("uint8", "int8"))
    state = Schedule(tvm.IRModule({"main": computation.function}))
    cpu_accumulate.schedule_accumulate(state, operator, form, knobs, intrinsic)
    return state.mod
