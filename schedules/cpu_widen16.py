"""The rule for CPUs that multiply int16 pairs and add the two products (x86's pmaddwd).

Codes are widened to int16 with their zero points subtracted, and two neighbouring input channels meet two weights in
one instruction: twice the products of the plain rule for each vector. Products of few rows leave the matrix in bytes.
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

name = "cpu_widen16"
version = 3
knobs = KNOBS
_PAIRS = 2


def check(operator: Operator, hardware: Hardware, facts: Facts) -> None:
    """Refuses what has no sums, a CPU without the instruction, and narrow groups."""
    check_wide(operator, hardware.facts.int32_lanes)
    if hardware.facts.instruction("int16", "int16") is None:
        raise NotApplicable(f"{hardware.name} has no instruction that multiplies int16 pairs and adds")


def space(operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
    """All shapes of the register tile."""
    assert isinstance(operator, (Convolution, MatrixMultiply))
    return cpu_accumulate.space(operator, hardware.facts.int32_lanes)


def form(operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
    """Pairs of input channels, panels of several vectors."""
    raw_weights = isinstance(operator, MatrixMultiply) and operator.rows <= knobs["raw_rows"]
    return form_of(
        operator, hardware.facts.int32_lanes, _PAIRS, knobs, Limits.costs_of(hardware.facts), raw_weights=raw_weights
    )


def schedule(
    operator: Operator, hardware: Hardware, computation: Computation, form: Any, knobs: Mapping[str, int]
) -> tvm.IRModule:
    """Schedules the named blocks of a computation."""
    import tvm
    from tvm.s_tir import Schedule

    from ..intrinsics import multiply_add_pairs

    assert isinstance(operator, (Convolution, MatrixMultiply))
    weights_dtype = form.filter_dtype(operator.b.dtype) if isinstance(operator, MatrixMultiply) else "int16"
    intrinsic = multiply_add_pairs.register(hardware.facts.instruction("int16", "int16"), weights_dtype)
    state = Schedule(tvm.IRModule({"main": computation.function}))
    cpu_accumulate.schedule_accumulate(state, operator, form, knobs, intrinsic)
    return state.mod
