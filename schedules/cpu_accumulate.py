"""What the CPU rules share: tiles of sums in registers, the loops around them, threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compute.form import AccumulateForm
from ..compute.geometry import Geometry, is_pointwise
from ..errors import NotApplicable
from ..spec import Convolution, MatrixMultiply, Operator
from .cpu_moves import block_names, keep_scalars_in_registers, transpose_in, transpose_out, write_out, write_row
from .cpu_tile import extents_of

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

#: knob -> (default, smallest, largest), of all rules that sum up tiles
KNOBS: Mapping[str, tuple[int, int, int]] = {
    "tile": (0, 0, 14),  # output positions that share a vector of the filter; 0: chosen by the shape
    "vectors": (0, 0, 8),  # vectors of output channels that share an input; 0: chosen by the shape
    "accumulators": (8, 1, 16),  # int32 vectors of sums, where the shape decides
    "unroll": (2, 1, 16),  # steps along the input channels that are written out
    "positions_first": (0, 0, 1),  # 1: each vector of the filter meets all positions before the next one is loaded
    "raw_rows": (4, 0, 64),  # products of fewer rows, or as many, read the matrix as codes of one byte
    "chunk_bytes": (
        262_144,
        4096,
        2**31 - 1,
    ),  # centred input that stays in the cache while the panels of the filter pass
    "serial_operations": (400_000, 0, 2**31 - 1),  # an operator with fewer multiply-accumulates runs in one thread
}
#: of the knob positions_first, in rules that offer it: 1 where a tile has fewer positions than vectors
BY_SHAPE = 2
#: Tasks that keep a handful of threads busy.
TASKS = 8


def space(operator: Convolution | MatrixMultiply, lanes: int) -> Mapping[str, tuple[int, ...]]:
    """The knob values that are worth trying."""
    positions, channels = extents_of(operator)
    return {
        "tile": tuple(size for size in (1, 2, 3, 4, 5, 6, 7, 8) if size <= positions),
        "vectors": tuple(size for size in (1, 2, 3, 4, 6, 8) if size <= -(-channels // lanes)),
        "unroll": (1, 2, 4, 8),
        "positions_first": (0, 1),
        "chunk_bytes": (65536, 262_144, 1_048_576),
    }


def is_narrow(operator: Convolution, lanes: int) -> bool:
    """Whether the output channels of a group do not fill a vector."""
    return operator.group_count > 1 and operator.output_channels // operator.group_count < lanes


def check_wide(operator: Operator, lanes: int) -> None:
    """Refuses what has no sums, and narrow groups, with NotApplicable."""
    if not isinstance(operator, (Convolution, MatrixMultiply)):
        raise NotApplicable("it is for convolutions and matrix products")
    if isinstance(operator, Convolution) and is_narrow(operator, lanes):
        width = operator.output_channels // operator.group_count
        raise NotApplicable(f"groups of {width} output channels do not fill a vector of {lanes}")


@dataclass(frozen=True)
class _Loops:
    """The loops of the block that is moved to: `positions` is tiled, `channels` is one panel."""

    batch: list[Any]
    rows: list[Any]
    positions: Any
    groups: list[Any]
    panel: Any
    channels: Any


def schedule_accumulate(
    state: Schedule,
    operator: Convolution | MatrixMultiply,
    form: AccumulateForm,
    knobs: Mapping[str, int],
    intrinsic: str | None = None,
) -> None:
    """Tiles, fuses and spreads the blocks of a convolution or matrix product.

    The loops, from the outside: batches, chunks of positions and panels of output channels (in parallel), tiles of
    positions. Within a tile the depth, then its sums, which live in registers until they are requantized.

    Args:
        state: the schedule of its function.
        operator: the operator.
        form: the arrangement.
        knobs: of KNOBS.
        intrinsic: tensor intrinsic of one vector of sums; without one, the vector loop is left to LLVM.
    """
    names = block_names(state)
    accumulate = state.get_sblock("accumulate")
    consumer = _consumer(state, names)
    loops = _consumer_loops(state, consumer, operator, form, is_output="output" in names)
    tile_outer, tile = state.split(loops.positions, [None, form.tile])
    chunk, within = _chunks(state, operator, form, knobs, loops, tile_outer, names)
    state.reorder(*loops.batch, *chunk, *loops.groups, loops.panel, *within, tile, loops.channels)
    parallel = operator.operations >= knobs["serial_operations"]
    # input that does not stay in the cache is centred for each chunk by the task that takes it
    is_local = "row_sums" not in names and _centred_bytes(state, names) > knobs["chunk_bytes"]
    tasks = state.fuse(*loops.batch, *chunk, *([] if is_local else [*loops.groups, loops.panel]))
    if parallel:
        state.parallel(tasks)
    innermost = within[-1]
    last = next((name for name in ("requantize", "shifted") if name in names), None)
    if "output" in names and last is not None:
        requantize = state.get_sblock(last)
        state.compute_at(requantize, innermost, preserve_unit_loops=True)
        *_, own_tile, own_channels = _spatial_tail(state, requantize, operator)
        write_out(state, form.vector, own_tile, own_channels)
    elif "output" not in names:
        write_out(state, form.vector, tile, loops.channels)
    state.compute_at(accumulate, innermost, preserve_unit_loops=True)
    if "output" in names:  # not before: what is moved to a block that has been cut into parts reaches one of them
        _schedule_moves_out(state, operator, form, tile, loops.channels)
    if is_local:
        state.compute_at(state.get_sblock("centred"), tasks, preserve_unit_loops=True)
    _schedule_reduction(state, accumulate, operator, form, knobs, intrinsic)
    for block in names:
        if _subtracts_from_packed_codes(state, block):
            _schedule_subtraction(state, block, form, parallel)
        elif block == "rows":
            assert isinstance(operator, Convolution)
            transpose_in(state, Geometry(operator, form).transposed_channels, operator.input.dtype, parallel)
        elif block == "centred":
            _schedule_centred(state, operator, form, parallel and not is_local)
        elif block not in ("accumulate", "requantize", "shifted", "output"):
            _parallel_rows(state, block, parallel)


def _consumer(state: Schedule, names: list[str]) -> Any:
    """The block that takes the sums over: a copy of them where there is none."""
    for name in ("output", "requantize", "shifted"):
        if name in names:
            return state.get_sblock(name)
    return state.cache_write(state.get_sblock("accumulate"), 0, "global")


def _consumer_loops(
    state: Schedule, block: Any, operator: Convolution | MatrixMultiply, form: AccumulateForm, is_output: bool
) -> _Loops:
    loops = state.get_loops(block)
    if is_output:
        position = 2 if isinstance(operator, Convolution) and not operator.channels_last else len(loops) - 1
        panel, channels = state.split(loops[position], [None, form.lanes])
        loops = [*loops[:position], panel, channels, *loops[position + 1 :]]
    if isinstance(operator, MatrixMultiply):
        *batch, rows, panel, channels = loops
        return _Loops(batch, [], rows, [], panel, channels)
    if is_output and not operator.channels_last:
        batch, groups, panel, channels, rows, columns = loops
    else:
        batch, rows, columns, groups, panel, channels = loops
    return _Loops([batch], [rows], columns, [groups], panel, channels)


def _chunks(
    state: Schedule,
    operator: Convolution | MatrixMultiply,
    form: AccumulateForm,
    knobs: Mapping[str, int],
    loops: _Loops,
    tile_outer: Any,
    names: list[str],
) -> tuple[list[Any], list[Any]]:
    """Cuts rows, or the tiles of the only row, into chunks that stay in the cache; (loops over them, loops within)."""
    by_rows = isinstance(operator, Convolution) and not is_pointwise(operator)
    loop = loops.rows[0] if by_rows else tile_outer
    extent = int(state.get(loop).extent)
    if by_rows:
        assert isinstance(operator, Convolution)
        elements = operator.input_spatial[-1] * operator.channels * (operator.strides or (1,))[0]
    else:
        elements = form.tile * (operator.channels if isinstance(operator, Convolution) else operator.depth)
    is_local = _centred_bytes(state, names) > knobs["chunk_bytes"]
    other_tasks = 1
    for other in (*loops.batch, *([] if is_local else [*loops.groups, loops.panel])):
        other_tasks *= int(state.get(other).extent)
    item_bytes = 1 if form.raw_data else 2
    largest = min(knobs["chunk_bytes"] // (item_bytes * elements), extent * other_tasks // TASKS)
    length = max(size for size in range(1, extent + 1) if extent % size == 0 and (size <= largest or size == 1))
    outer, inner = state.split(loop, [None, length])
    if by_rows:
        return [outer], [inner, tile_outer]
    return [*loops.rows, outer], [inner]


def _centred_bytes(state: Schedule, names: list[str]) -> int:
    """Of the whole centred input; 0 where the input is read where it is."""
    if "centred" not in names:
        return 0
    buffer = state.get(state.get_sblock("centred")).writes[0].source
    size = 2 if str(buffer.dtype) == "int16" else 1
    for extent in buffer.shape:
        size *= int(extent)
    return size


def _spatial_tail(state: Schedule, block: Any, operator: Convolution | MatrixMultiply) -> tuple[Any, ...]:
    """A moved block's own loops over the positions of a tile and over the channels of a panel."""
    loops = state.get_loops(block)
    return (loops[-4], loops[-1]) if isinstance(operator, Convolution) else (loops[-3], loops[-1])


def _schedule_moves_out(
    state: Schedule, operator: Convolution | MatrixMultiply, form: AccumulateForm, tile: Any, channels: Any
) -> None:
    """The results of a tile to their places."""
    vector = form.vector
    width = extents_of(operator)[1]
    if isinstance(operator, Convolution) and not operator.channels_last:
        positions, group_width = extents_of(operator)
        transpose_out(state, form.lanes, positions, group_width, operator.outputs[0].dtype, tile, channels)
        return
    state.unroll(tile)
    write_row(state, channels, width % form.lanes, vector)


def _reductions(state: Schedule, block: Any) -> int:
    return sum(1 for variable in state.get(block).iter_vars if variable.iter_type == 2)


def _schedule_reduction(
    state: Schedule,
    accumulate: Any,
    operator: Convolution | MatrixMultiply,
    form: AccumulateForm,
    knobs: Mapping[str, int],
    intrinsic: str | None,
) -> None:
    taps = 2 if isinstance(operator, Convolution) else 0
    own = state.get_loops(accumulate)
    pair = [own.pop()] if form.pairs > 1 else []
    depth = own.pop()
    outer_taps = [own.pop() for _ in range(taps)][::-1]
    channels = own.pop()
    panel, groups = own.pop(), [own.pop()] if isinstance(operator, Convolution) else []
    tile = own.pop()
    del panel, groups
    extent = int(state.get(depth).extent)
    steps = max(size for size in range(1, knobs["unroll"] + 1) if extent % size == 0)
    outer, step = state.split(depth, [None, steps])
    vectors, lane = state.split(channels, [None, form.vector])
    positions_first = _positions_first(form, knobs)
    spatial = [vectors, tile] if positions_first else [tile, vectors]
    state.reorder(*outer_taps, outer, step, *spatial, lane, *pair)
    for loop in (step, *spatial):
        state.unroll(loop)
    if intrinsic is None:
        # a block without its initialization counts as no reduction any more, so that its loops must be marked before
        state.vectorize(lane)
    first = (*outer_taps, outer)[0]
    initial = state.decompose_reduction(accumulate, first)
    if intrinsic is not None:
        state.tensorize(lane, intrinsic)
    loops = state.get_loops(initial)
    own_lane = loops[-1]
    own_tile, own_vectors = (loops[-2], loops[-3]) if positions_first else (loops[-3], loops[-2])
    state.unroll(own_tile)
    state.unroll(own_vectors)
    state.vectorize(own_lane)


def _positions_first(form: AccumulateForm, knobs: Mapping[str, int]) -> bool:
    """Whether a vector of the filter meets all positions before the next; by shape: what needs fewer registers."""
    if knobs["positions_first"] == BY_SHAPE:
        return form.tile < form.lanes // form.vector
    return bool(knobs["positions_first"])


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


def _schedule_centred(
    state: Schedule, operator: Convolution | MatrixMultiply, form: AccumulateForm, parallel: bool
) -> None:
    """The centred input, whole vectors of neighbours at a time, without conditions within a row."""
    if isinstance(operator, MatrixMultiply):
        first, size = 0, operator.depth
    else:
        geometry = Geometry(operator, form)
        if not geometry.is_contiguous:
            _parallel_rows(state, "centred", parallel)
            block = state.get_sblock("centred")
            keep_scalars_in_registers(state, block, state.get_loops(block)[0])
            if geometry.centred_channels % form.vector == 0 or geometry.centred_channels < form.vector:
                _gather_channels(state, geometry, state.get_loops(block)[-1])
            return
        first = geometry.start_padding[1] * geometry.centred_channels
        size = min(geometry.input[1] * geometry.centred_channels, geometry.row - first)
    *rows, row = state.get_loops(state.get_sblock("centred"))
    if parallel:
        state.parallel(state.fuse(*rows))
    extent = int(state.get(row).extent)
    cuts = [cut for cut in (first, size) if cut]
    if size <= 0:  # all columns that are read are padding
        return
    if sum(cuts) < extent:
        state.loop_partition(row, [*cuts, None])
    elif len(cuts) > 1:
        state.loop_partition(row, [first, None])


def _gather_channels(state: Schedule, geometry: Geometry, row: Any) -> None:
    """All channels of a position in one step, or vectors of them, without conditions where there is input."""
    channels, stride, vector = geometry.centred_channels, geometry.centred_strides[1], geometry.form.vector
    longest = 4 * vector if geometry.form.raw_data else 2 * vector
    length = next((size for size in (longest, 2 * vector, vector) if channels % size == 0), 0)
    extent = int(state.get(row).extent)
    if extent != geometry.row:  # a task gathers a part of the row
        if length and extent % length == 0:
            state.vectorize(state.split(row, [None, length])[1])
        return
    whole = geometry.padded[1] * channels
    if whole < extent:
        row = state.loop_partition(row, [whole, None])[0]
    positions, channel = state.split(row, [None, channels])
    if length:
        state.vectorize(state.split(channel, [None, length])[1])
    else:
        state.unroll(channel)
    first = -(-geometry.start_padding[1] // stride)
    end = (geometry.start_padding[1] + geometry.input[1] - 1) // stride + 1
    inner = min(end, geometry.padded[1]) - first
    if inner > 0 and first + inner < geometry.padded[1]:
        state.loop_partition(positions, [first, inner, None] if first else [inner, None])
    elif inner > 0 and first:
        state.loop_partition(positions, [first, None])


def _parallel_rows(state: Schedule, name: str, parallel: bool) -> None:
    """Spreads a block over the threads: all loops but the two innermost, and but those that it sums over."""
    block = state.get_sblock(name)
    loops = state.get_loops(block)
    outer = loops[: len(loops) - max(2, _reductions(state, block))]
    if parallel and outer:
        state.parallel(state.fuse(*outer) if len(outer) > 1 else outer[0])
