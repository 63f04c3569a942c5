"""The plain rule for CPUs: applies to every operator and every vector width.

Accumulate: vectors of int32 lanes over the output channels, `tile` output positions x `accumulators / tile` vectors
in registers, one broadcast input element after the other. Elementwise: whole vectors over the flat tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..backends.interface import Hardware
from ..compute.form import ElementwiseForm, rows_of
from ..constants.facts import Facts
from ..spec import Convolution, DynamicQuantizeLinear, MatrixMultiply, Operator
from . import cpu_accumulate
from .cpu_moves import block_names, keep_scalars_in_registers
from .cpu_tile import Limits, form_of

if TYPE_CHECKING:  # TVM takes seconds to import, and choosing a rule does not need it
    import tvm
    from tvm.s_tir import Schedule

    from ..compute.computation import Computation

name = "cpu_plain"
version = 3
#: knob -> (default, smallest, largest)
knobs: Mapping[str, tuple[int, int, int]] = {
    **cpu_accumulate.KNOBS,
    "vectors_per_chunk": (512, 1, 65536),  # elementwise: vectors that one thread takes at a time
}


def check(operator: Operator, hardware: Hardware, facts: Facts) -> None:
    """Applies always."""


def space(operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
    """All shapes of the register tile; elementwise the share of a thread."""
    if isinstance(operator, (Convolution, MatrixMultiply)):
        return cpu_accumulate.space(operator, hardware.facts.int32_lanes)
    return {"vectors_per_chunk": (64, 128, 256, 512, 1024, 2048, 4096)}


def form(operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
    """Lanes of one int32 vector; elementwise four of them, which fill a vector of codes."""
    lanes = hardware.facts.int32_lanes
    if isinstance(operator, (Convolution, MatrixMultiply)):
        return form_of(operator, lanes, 1, knobs, Limits.costs_of(hardware.facts))
    return ElementwiseForm(4 * lanes)


def schedule(
    operator: Operator, hardware: Hardware, computation: Computation, form: Any, knobs: Mapping[str, int]
) -> tvm.IRModule:
    """Schedules the named blocks of a computation."""
    import tvm
    from tvm.s_tir import Schedule

    state = Schedule(tvm.IRModule({"main": computation.function}))
    if isinstance(operator, (Convolution, MatrixMultiply)):
        cpu_accumulate.schedule_accumulate(state, operator, form, knobs)
    else:
        # an element that is converted takes the time of about four multiply-accumulates
        parallel = 4 * operator.operations >= knobs["serial_operations"]
        _schedule_elementwise(state, operator, form, knobs, parallel)
    return state.mod


def _schedule_elementwise(
    state: Schedule, operator: Operator, form: ElementwiseForm, knobs: Mapping[str, int], parallel: bool
) -> None:
    rows = None if isinstance(operator, DynamicQuantizeLinear) else rows_of(operator, form)
    for block in block_names(state):
        if block.endswith("_of_lanes"):
            _schedule_lanes_reduction(state, block)
    (flat,) = state.get_loops(state.get_sblock("output"))
    elements = int(state.get(flat).extent)
    if elements == 0:
        return
    segment = rows.segment if rows is not None else elements
    whole = _partition(state, flat, elements // segment * segment, elements)
    if whole is None:
        return
    row, column = state.split(whole, [None, segment])
    vectors = _partition(state, column, segment // form.lanes * form.lanes, segment)
    if vectors is None:
        return
    vector, lane = state.split(vectors, [None, form.lanes])
    state.vectorize(lane)
    (block,) = state.get_child_blocks(lane)
    outer = row
    if elements // segment == 1 and parallel:
        outer, _ = state.split(vector, [None, knobs["vectors_per_chunk"]])
    if parallel:
        state.parallel(outer)
    # where the row is partitioned, a copy lands inside the row by itself
    is_partitioned_row = outer is row and segment % form.lanes != 0
    keep_scalars_in_registers(state, block, None if is_partitioned_row else outer)


def _partition(state: Schedule, loop: Any, head: int, extent: int) -> Any:
    """Cuts a loop in two, without conditions in either; the first part, or None where it is empty."""
    if head == 0:
        return None
    return loop if head == extent else state.loop_partition(loop, [head, None])[0]


def _schedule_lanes_reduction(state: Schedule, name: str) -> None:
    block = state.get_sblock(name)
    lane, row = state.get_loops(block)
    state.reorder(row, lane)
    state.vectorize(lane)
    initial = state.decompose_reduction(block, row)
    state.vectorize(state.get_loops(initial)[-1])
