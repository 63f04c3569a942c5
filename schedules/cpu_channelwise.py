"""The rule for CPUs and convolutions with few input channels for each output channel: depthwise, narrow groups.

Each lane sums up an output of its own. Where the CPU multiplies int16 pairs (x86's pmaddwd), two neighbouring taps of
the filter meet their data in one instruction; the data are packed so once, for a chunk of rows that stays in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..backends.interface import Hardware
from ..compute.channelwise_geometry import ChannelwiseGeometry
from ..compute.form import ChannelwiseForm
from ..constants.facts import Facts
from ..errors import NotApplicable
from ..spec import Convolution, Operator
from .cpu_accumulate import TASKS, is_narrow
from .cpu_moves import block_names, transpose_in, transpose_out, write_out, write_row

if TYPE_CHECKING:  # TVM takes seconds to import, and choosing a rule does not need it
    import tvm
    from tvm.s_tir import Schedule

    from ..compute.computation import Computation

name = "cpu_channelwise"
version = 2
#: knob -> (default, smallest, largest)
knobs: Mapping[str, tuple[int, int, int]] = {
    "tile": (4, 1, 8),  # columns (NHWC) or vectors of columns (NCHW) that share the vectors of the filter
    "blocks": (4, 1, 16),  # NHWC: vectors of channels that are packed together
    "least_columns": (14, 1, 2**16),  # NCHW: from so many columns of the output on, lanes are columns
    "chunk_bytes": (262_144, 4096, 2**31 - 1),  # packed input of a chunk of rows
    "unroll": (16, 1, 64),  # taps of the filter that are written out
    "serial_operations": (200_000, 0, 2**31 - 1),  # an operator with fewer multiply-accumulates runs in one thread
}


def check(operator: Operator, hardware: Hardware, facts: Facts) -> None:
    """Refuses what has no taps, and groups that fill a vector."""
    if not isinstance(operator, Convolution):
        raise NotApplicable("it is for convolutions")
    if not is_narrow(operator, hardware.facts.int32_lanes):
        width = operator.output_channels // operator.group_count
        raise NotApplicable(
            f"it is for groups of fewer than {hardware.facts.int32_lanes} output channels; here one has {width}"
        )


def space(operator: Operator, hardware: Hardware) -> Mapping[str, tuple[int, ...]]:
    """All tiles, and several sizes of the chunks."""
    return {
        "tile": tuple(range(1, 9)),
        "blocks": (1, 2, 4, 8),
        "least_columns": (1, 14, 2**16),
        "chunk_bytes": (32_768, 65_536, 131_072, 262_144, 524_288),
        "unroll": (1, 3, 16, 32),
    }


def form(operator: Operator, hardware: Hardware, knobs: Mapping[str, int], facts: Facts) -> Any:
    """Lanes along what lies side by side in memory."""
    assert isinstance(operator, Convolution)
    lanes = hardware.facts.int32_lanes
    # rows that do not fill some vectors, or are read in steps, are transposed instead
    along_columns = (
        not operator.channels_last
        and operator.output_spatial[-1] >= knobs["least_columns"]
        and (operator.strides or (1,))[-1] == 1
    )
    width = -(-operator.output_spatial[-1] // lanes) if along_columns else operator.output_spatial[-1]
    largest = min(knobs["tile"], width)
    # the tile that computes the fewest columns beyond the row, the largest of these
    tile = min(range(1, largest + 1), key=lambda size: (-(-width // size) * size, -size))
    return ChannelwiseForm(lanes, tile, along_columns, pairs=2 if hardware.facts.instruction("int16", "int16") else 1)


def schedule(
    operator: Operator, hardware: Hardware, computation: Computation, form: Any, knobs: Mapping[str, int]
) -> tvm.IRModule:
    """Schedules the named blocks of a computation."""
    import tvm
    from tvm.s_tir import Schedule

    assert isinstance(operator, Convolution)
    state = Schedule(tvm.IRModule({"main": computation.function}))
    _Moves(state, operator, hardware, form, knobs).apply()
    return state.mod


class _Moves:
    """The moves of one schedule."""

    def __init__(
        self,
        state: Schedule,
        operator: Convolution,
        hardware: Hardware,
        form: ChannelwiseForm,
        knobs: Mapping[str, int],
    ):
        self.state = state
        self.operator = operator
        self.hardware = hardware
        self.form = form
        self.knobs = knobs
        self.names = block_names(state)
        self.parallel = operator.operations >= knobs["serial_operations"]

    def apply(self) -> None:
        """Tiles the output, moves the other stages into its loops."""
        state, form = self.state, self.form
        accumulate = state.get_sblock("accumulate")
        consumer = self._consumer()
        batch, channels, rows, columns, lane = self._consumer_loops(consumer)
        together = self._blocks(channels)
        panel, block = state.split(channels, [None, together])
        chunk, row = state.split(rows, [None, self._chunk_rows(rows, together)])
        outer, tile = state.split(columns, [None, form.tile])
        state.reorder(batch, chunk, panel, block, row, outer, tile, lane)
        tasks = state.fuse(batch, chunk, panel)
        if self.parallel:
            state.parallel(tasks)
        has_output = "output" in self.names
        if has_output and "requantize" in self.names:
            requantize = state.get_sblock("requantize")
            state.compute_at(requantize, outer, preserve_unit_loops=True)
            loops = state.get_loops(requantize)
            write_out(state, form.lanes, loops[-2 if form.along_columns else -4], loops[-1])
        if not has_output:
            write_out(state, form.lanes, tile, lane)
        state.compute_at(accumulate, outer, preserve_unit_loops=True)
        if has_output:  # not before: what is moved to a block that has been cut into parts reaches one of them
            self._moves_out(tile, lane)
        if self._is_packed_by_task():
            state.compute_at(state.get_sblock("centred"), tasks, preserve_unit_loops=True)
        self._reduction(accumulate)
        self._centred()
        if "rows" in self.names:
            size = ChannelwiseGeometry(self.operator, form).transposed_channels
            transpose_in(state, size, self.operator.input.dtype, self.parallel)

    def _moves_out(self, tile: Any, lane: Any) -> None:
        """The results of a tile to their places."""
        state, form, operator = self.state, self.form, self.operator
        if not form.along_columns and not operator.channels_last:
            width, positions = operator.output_channels, operator.output_spatial[-1]
            transpose_out(state, form.lanes, positions, width, operator.outputs[0].dtype, tile, lane)
            return
        state.unroll(tile)
        elements = operator.output_spatial[-1] if form.along_columns else operator.output_channels
        write_row(state, lane, elements % form.lanes, form.lanes)

    def _consumer(self) -> Any:
        for name in ("output", "requantize"):
            if name in self.names:
                return self.state.get_sblock(name)
        return self.state.cache_write(self.state.get_sblock("accumulate"), 0, "global")

    def _consumer_loops(self, block: Any) -> tuple[Any, ...]:
        """Batch, channels (or their blocks), rows, columns (or their vectors) and lanes."""
        state, lanes = self.state, self.form.lanes
        loops = state.get_loops(block)
        is_output = "output" in self.names
        if self.form.along_columns:
            batch, channels, rows, *columns = loops
            vectors, lane = state.split(columns[0], [None, lanes]) if is_output else columns
            return batch, channels, rows, vectors, lane
        if is_output and not self.operator.channels_last:
            batch, outputs, rows, columns = loops
            blocks, lane = state.split(outputs, [None, lanes])
            return batch, blocks, rows, columns, lane
        batch, rows, columns, *channels = loops
        blocks, lane = state.split(channels[0], [None, lanes]) if is_output else channels[1:]
        if not is_output:
            blocks = state.fuse(channels[0], blocks)
        return batch, blocks, rows, columns, lane

    def _blocks(self, channels: Any) -> int:
        """Vectors of channels of one task: a divisor of their number. Together they fill a line of the cache."""
        extent = int(self.state.get(channels).extent)
        largest = 1 if self.form.along_columns else self.knobs["blocks"]
        return max(size for size in range(1, largest + 1) if extent % size == 0)

    def _chunk_rows(self, rows: Any, blocks: int) -> int:
        """Rows of the output whose packed input stays in the cache: a divisor of their number."""
        extent = int(self.state.get(rows).extent)
        width = self.operator.input_spatial[-1] * (1 if self.form.along_columns else self.form.lanes * blocks)
        strides = self.operator.strides or (1,)
        stride = strides[0] if len(strides) > 1 else 1
        channels = self.operator.filter_channels
        largest = max(1, self.knobs["chunk_bytes"] // (4 * width * stride * channels))
        tasks = self.operator.batch * -(-self.operator.output_channels // (self.form.lanes * blocks))
        largest = min(largest, max(1, extent * tasks // TASKS))
        return max(size for size in range(1, extent + 1) if extent % size == 0 and size <= largest)

    def _is_packed_by_task(self) -> bool:
        """Whether a task packs its own input: not where several output channels share it."""
        group_width = self.operator.output_channels // self.operator.group_count
        return not self.form.along_columns or group_width == 1

    def _reduction(self, accumulate: Any) -> None:
        state, form = self.state, self.form
        loops = state.get_loops(accumulate)
        c, kh, kw = loops[-3:]
        own = loops[-8:-3] if form.along_columns else loops[-9:-3]
        tile, lane = (own[3], own[4]) if form.along_columns else (own[2], own[5])
        state.reorder(c, kh, kw, tile, lane)
        state.unroll(tile)
        left = self.knobs["unroll"]
        for loop in (kw, kh, c):
            extent = int(state.get(loop).extent)
            if extent > left:
                break
            state.unroll(loop)
            left //= extent
        if form.pairs == 1:
            state.vectorize(lane)
        initial = state.decompose_reduction(accumulate, c)
        if form.pairs == 2:
            from ..intrinsics import multiply_add_pairs

            instruction = self.hardware.facts.instruction("int16", "int16")
            name = multiply_add_pairs.register_packed(instruction, for_each_lane=not form.along_columns)
            state.tensorize(lane, name)
        loops = state.get_loops(initial)
        state.unroll(loops[-2 if form.along_columns else -4])
        state.vectorize(loops[-1])

    def _centred(self) -> None:
        """Whole vectors where the neighbours in the packed input are neighbours in the input."""
        state, form, operator = self.state, self.form, self.operator
        block = state.get_sblock("centred")
        loops = state.get_loops(block)
        if not self._is_packed_by_task() and self.parallel:
            state.parallel(state.fuse(*loops[:-3]))
            loops = state.get_loops(block)
        is_depthwise = operator.output_channels == operator.group_count == operator.channels
        if not form.along_columns and is_depthwise and operator.output_channels % form.lanes == 0:
            state.vectorize(loops[-1])
        first, count = ChannelwiseGeometry(operator, form).inner_columns
        columns = loops[-1 if form.along_columns else -4]
        extent = int(state.get(columns).extent)
        cuts = [first, count] if first else [count]
        if count > 0 and sum(cuts) < extent:
            state.loop_partition(columns, [*cuts, None])
        elif count > 0 and first:
            state.loop_partition(columns, [first, None])
