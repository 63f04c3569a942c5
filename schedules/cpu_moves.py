"""What the CPU rules share: codes on their way in and out, in whole vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compute.geometry import TRANSPOSED_POSITIONS

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def block_names(state: Schedule) -> list[str]:
    """The blocks of a function before anything was moved."""
    root = state.get_sblock("root")
    return [state.get(block).name_hint for block in state.get_child_blocks(root)]


def write_out(state: Schedule, vector: int, tile: Any, channels: Any) -> None:
    """All positions of a tile written out, whole vectors of channels."""
    vectors, lane = state.split(channels, [None, vector])
    state.unroll(tile)
    state.unroll(vectors)
    state.vectorize(lane)


def write_row(state: Schedule, channels: Any, rest: int, vector: int) -> None:
    """Codes side by side in the output: whole vectors, and smaller ones where the last panel of channels ends.

    Each channel would have a condition otherwise, of which LLVM makes masked stores.

    Args:
        state: the schedule.
        channels: the loop over the channels of a panel.
        rest: channels of the last panel; 0 where it is full.
        vector: elements of a whole vector.
    """
    lanes = int(state.get(channels).extent)
    cuts = [*_pieces(0, rest or lanes, vector), *_pieces(rest, lanes if rest else 0, vector)]
    parts = state.loop_partition(channels, [*cuts[:-1], None]) if len(cuts) > 1 else [channels]
    for part in parts:
        state.vectorize(part)


def _pieces(first: int, end: int, vector: int) -> list[int]:
    """Lengths of powers of two, at most `vector`, that fill a range and do not cross their multiples."""
    pieces = []
    while first < end:
        size = vector
        while first % size or first + size > end:
            size //= 2
        pieces.append(size)
        first += size
    return pieces


def transpose_in(state: Schedule, size: int, dtype: str, parallel: bool) -> None:
    """The stage "rows", block by block in registers; `size` are the channels of a block."""
    from ..intrinsics import transpose

    batch, blocks, position, channels = state.get_loops(state.get_sblock("rows"))
    channel_blocks, channel = state.split(channels, [None, size])
    state.reorder(blocks, channel_blocks, position, channel)
    if parallel:
        state.parallel(state.fuse(batch, blocks))
    state.tensorize(position, transpose.register(size, TRANSPOSED_POSITIONS, dtype))


def transpose_out(
    state: Schedule, lanes: int, positions: int, width: int, dtype: str, tile: Any, channels: Any
) -> None:
    """Codes of a tile, channel by channel in the output: in registers where whole blocks are transposed.

    Args:
        state: the schedule.
        lanes: channels of a panel.
        positions: of a row of the output.
        width: output channels of a group.
        dtype: of the codes.
        tile: the loop over the positions of a tile.
        channels: the loop over the channels of a panel.
    """
    from ..intrinsics import transpose

    size = int(state.get(tile).extent)
    block_width = 16 if lanes % 16 == 0 else 8
    is_whole = positions % size == 0 and width % lanes == 0 and lanes % block_width == 0
    if is_whole and size in (2, 4, 8, 16) and size <= block_width and dtype in ("int8", "uint8"):
        blocks, block = state.split(channels, [None, block_width])
        state.reorder(blocks, block, tile)
        state.unroll(blocks)
        state.tensorize(block, transpose.register(size, block_width, dtype, source_ones=2, target_ones=1))
        return
    state.reorder(channels, tile)
    # channels that every panel has, and those that the last one has not: all of these or none, as in write_row
    rest = width % lanes
    for part in state.loop_partition(channels, [rest, None]) if rest else [channels]:
        (block,) = state.get_child_blocks(part)
        state.unroll(state.get_loops(block)[-1])


def keep_scalars_in_registers(state: Schedule, block: Any, outer: Any) -> None:
    """Copies parameters of one element to locals: LLVM would load them again after every store, which may alias."""
    for index, region in enumerate(state.get(block).reads):
        if all(int(extent) == 1 for extent in region.source.shape):
            copy = state.cache_read(block, index, "local", [block])
            if outer is not None:
                state.compute_at(copy, outer)
