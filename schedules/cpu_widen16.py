"""The rule for CPUs that multiply int16 pairs and add the two products (x86's pmaddwd).

Codes are widened to int16 with their zero points subtracted, and two neighbouring input channels meet two weights in
one instruction: twice the products of the plain rule for each vector. Groups that are narrower than a vector stay with
the plain rule, whose lanes are channels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qcompile.compute.form import AccumulateForm
from qcompile.errors import NotApplicable
from qcompile.hardware import Hardware
from qcompile.schedules.cpu_accumulate import is_narrow, schedule_accumulate, tile_axis_of
from qcompile.spec import Convolution, MatrixMultiply, Operator

if TYPE_CHECKING:  # TVM takes seconds to import, and choosing a rule does not need it
    import tvm

    from qcompile.compute.computation import Computation

name = "cpu_widen16"
version = 1
#: knob -> (default, smallest, largest)
knobs: Mapping[str, tuple[int, int, int]] = {
    "accumulators": (9, 1, 16),  # int32 vectors that are kept in registers
    "tile": (3, 1, 12),  # output positions that share a vector of the filter
    "serial_operations": (400_000, 0, 2**31 - 1),  # an operator with fewer multiply-accumulates runs in one thread
}
_PAIRS = 2


def check(operator: Operator, hardware: Hardware) -> None:
    """Refuses what has no sums, a CPU without the instruction, and narrow groups."""
    if not isinstance(operator, (Convolution, MatrixMultiply)):
        raise NotApplicable("it is for convolutions and matrix products")
    if not hardware.multiply_add_pairs:
        raise NotApplicable(f"{hardware.name} has no instruction that multiplies int16 pairs and adds")
    if isinstance(operator, Convolution) and is_narrow(operator, hardware.int32_lanes):
        width = operator.output_channels // operator.group_count
        raise NotApplicable(f"groups of {width} output channels do not fill a vector of {hardware.int32_lanes}")


def space(operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
    """All shapes of the register tile."""
    return {"accumulators": tuple(range(4, 15)), "tile": tuple(range(1, 8))}


def form(operator: Operator, hardware: Hardware, knobs: Mapping[str, int]) -> Any:
    """Pairs of input channels, lanes of one int32 vector."""
    assert isinstance(operator, (Convolution, MatrixMultiply))
    positions = operator.output_spatial[-1] if isinstance(operator, Convolution) else operator.rows
    tile = _tile(positions, knobs["tile"])
    return AccumulateForm(hardware.int32_lanes, tile, pairs=_PAIRS, intrinsic=hardware.multiply_add_pairs)


def _tile(positions: int, largest: int) -> int:
    """The tile that computes the fewest positions beyond the row, the largest of these."""
    return min(range(1, min(largest, positions) + 1), key=lambda tile: (-(-positions // tile) * tile, -tile))


def schedule(operator: Operator, computation: Computation, form: Any, knobs: Mapping[str, int]) -> tvm.IRModule:
    """Schedules the named blocks of a computation."""
    import tvm
    from tvm.s_tir import Schedule

    from qcompile.intrinsics import multiply_add_pairs

    assert isinstance(operator, (Convolution, MatrixMultiply))
    intrinsic = multiply_add_pairs.register(form.intrinsic, form.lanes)
    state = Schedule(tvm.IRModule({"main": computation.function}))
    parallel = operator.operations >= knobs["serial_operations"]
    schedule_accumulate(state, tile_axis_of(operator), form, knobs, parallel, intrinsic)
    return state.mod
