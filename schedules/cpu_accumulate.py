"""What the CPU rules share: tiles of sums in registers, the moves around them, threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qcompile.compute.form import AccumulateForm
from qcompile.spec import Convolution, MatrixMultiply

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def is_narrow(operator: Convolution, lanes: int) -> bool:
    """Whether the output channels of a group do not fill a vector."""
    return operator.group_count > 1 and operator.output_channels // operator.group_count < lanes


def tile_axis_of(operator: Convolution | MatrixMultiply) -> int:
    """The position of the output's columns (convolution) or rows (matrix product) among its axes."""
    return 2 if isinstance(operator, Convolution) else len(operator.batch_shape)


def block_names(state: Schedule) -> list[str]:
    """The blocks of a function before anything was moved."""
    root = state.get_sblock("root")
    return [state.get(block).name_hint for block in state.get_child_blocks(root)]


def schedule_accumulate(
    state: Schedule,
    tile_axis: int,
    form: AccumulateForm,
    knobs: Mapping[str, int],
    parallel: bool,
    intrinsic: str | None = None,
) -> None:
    """Tiles, fuses and spreads the blocks of a convolution or matrix product.

    Args:
        state: the schedule of its function.
        tile_axis: the spatial axis of the output that is tiled.
        form: the arrangement.
        knobs: "accumulators": int32 vectors that are kept in registers.
        parallel: whether to use threads.
        intrinsic: tensor intrinsic of one vector of sums; without one, the vector loop is left to LLVM.
    """
    names = block_names(state)
    accumulate = state.get_sblock("accumulate")
    # the sums of a tile live in registers until the consumer has taken them
    consumer = state.get_sblock("requantize") if "requantize" in names else state.cache_write(accumulate, 0, "global")
    loops = state.get_loops(consumer)
    spatial = len(loops)
    tile_outer, tile_inner = state.split(loops[tile_axis], [None, form.tile])
    blocks = int(state.get(loops[-2]).extent)
    limit = max(1, knobs["accumulators"] // form.tile)
    together = max(count for count in range(1, limit + 1) if blocks % count == 0)
    block_outer, block_inner = state.split(loops[-2], [None, together])
    outer = [*loops[:tile_axis], *loops[tile_axis + 1 : -2], block_outer]
    state.reorder(*outer, tile_outer, tile_inner, block_inner, loops[-1])
    if parallel:
        outer = [state.fuse(*outer)] if len(outer) > 1 else outer
        state.parallel(outer[0])
    state.compute_at(accumulate, tile_outer, preserve_unit_loops=True)
    _unroll_tile(state, tile_inner, block_inner, loops[-1])
    _schedule_reduction(state, accumulate, spatial, tile_axis, intrinsic)
    for block in names:
        if _subtracts_from_packed_codes(state, block):
            _schedule_subtraction(state, block, form, parallel)
        elif block not in ("accumulate", "requantize"):
            _parallel_rows(state, block, parallel)


def _subtracts_from_packed_codes(state: Schedule, block: str) -> bool:
    if block != "packed_filter":
        return False
    reads = state.get(state.get_sblock(block)).reads
    return any(region.source.name == "packed_codes" for region in reads)


def _schedule_subtraction(state: Schedule, block: str, form: AccumulateForm, parallel: bool) -> None:
    """The filter minus a zero point of run time: a vector at a time."""
    loops = state.get_loops(state.get_sblock(block))
    inner = 1 if form.pairs == 1 else 2
    state.vectorize(state.fuse(*loops[-inner:]) if inner > 1 else loops[-1])
    if parallel:
        state.parallel(state.fuse(*loops[: -inner - 1]))


def _unroll_tile(state: Schedule, tile: Any, block: Any, lane: Any) -> None:
    state.unroll(tile)
    state.unroll(block)
    state.vectorize(lane)


def _schedule_reduction(state: Schedule, accumulate: Any, spatial: int, tile_axis: int, intrinsic: str | None) -> None:
    own = state.get_loops(accumulate)
    reduction_count = len(state.get(accumulate).iter_vars) - spatial
    own = own[-(spatial + reduction_count) :]
    reductions = own[spatial:]
    tile, block, lane = own[tile_axis], own[spatial - 2], own[spatial - 1]
    others = [loop for position, loop in enumerate(own[: spatial - 2]) if position != tile_axis]
    if intrinsic is None:
        state.reorder(*others, *reductions, tile, block, lane)
        # a block without its initialization counts as no reduction any more, so that its loops must be marked before
        _unroll_tile(state, tile, block, lane)
        initial = state.decompose_reduction(accumulate, reductions[0])
    else:
        *outer, pair = reductions
        state.reorder(*others, *outer, tile, block, lane, pair)
        state.unroll(tile)
        state.unroll(block)
        initial = state.decompose_reduction(accumulate, outer[0])
        state.tensorize(lane, intrinsic)
    loops = state.get_loops(initial)[-spatial:]
    _unroll_tile(state, loops[-3], loops[-2], loops[-1])


def _parallel_rows(state: Schedule, block: str, parallel: bool) -> None:
    """Spreads a block of moves over the threads: all loops but the two innermost."""
    loops = state.get_loops(state.get_sblock(block))
    if parallel and len(loops) > 2:
        state.parallel(state.fuse(*loops[:-2]) if len(loops) > 3 else loops[0])
