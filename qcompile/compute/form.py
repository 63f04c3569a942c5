"""How the tensors of a computation are arranged: the choices of a schedule rule that TE and packing must share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..spec import Convolution, MatrixMultiply, Operator


@dataclass(frozen=True)
class AccumulateForm:
    """Arrangement of a convolution or matrix product.

    Args:
        lanes: output channels (or columns) that lie side by side: a panel of one or several vectors.
        tile: output positions of a row (or rows of a matrix) that are computed together; the rows of the padded
            input are long enough for whole tiles.
        vector: lanes of one vector; a divisor of `lanes`.
        pairs: neighbours along the input channels (or K) that lie side by side in each lane; the last ones are
            filled up with 0. 1 where there is no such axis.
        raw_data: whether the input stays in codes, as uint8 (int8 is moved by 128), and the filter is int8 too; the
            input's zero point is then taken into account with the sums of the filter. Otherwise both are int16, with
            their zero points subtracted.
        raw_weights: whether the filter stays in codes, whose zero point is then taken into account with the sums of the
            data: in its own type, or as int8 (uint8 is moved by -128) where the data are raw as well.
    """

    lanes: int
    tile: int
    vector: int
    pairs: int = 1
    raw_data: bool = False
    raw_weights: bool = False

    def filter_dtype(self, dtype: str) -> str:
        """The type of the packed filter, from that of its codes."""
        if self.raw_data:
            return "int8"
        return dtype if self.raw_weights else "int16"

    def depth_shape(self, depth: int) -> tuple[int, ...]:
        """The axes of `depth` input channels: (depth,), or (groups of neighbours, pairs)."""
        return (depth,) if self.pairs == 1 else (-(-depth // self.pairs), self.pairs)


@dataclass(frozen=True)
class ChannelwiseForm:
    """Arrangement of a convolution whose output channels each have few input channels of their own.

    Args:
        lanes: elements of one vector of sums.
        tile: columns (or vectors of columns) of the output that are computed together.
        along_columns: whether the lanes are columns of the output (NCHW only); otherwise they are output channels.
        pairs: neighbouring taps that meet their weights in one step; the last ones are filled up with 0.
    """

    lanes: int
    tile: int
    along_columns: bool
    pairs: int = 1


@dataclass(frozen=True)
class ElementwiseForm:
    """Arrangement of an operator on single elements.

    Args:
        lanes: elements in one vector.
    """

    lanes: int


@dataclass(frozen=True)
class ChannelBlocks:
    """Output channels cut into blocks of `lanes`, group by group; the last block of a group may have empty lanes.

    Channel o of all `groups * width` lies in group o // width, block (o % width) // lanes, lane (o % width) % lanes.
    """

    groups: int
    width: int
    lanes: int

    @property
    def blocks(self) -> int:
        """Blocks of one group."""
        return -(-self.width // self.lanes)

    @property
    def is_full(self) -> bool:
        """Whether no lane is empty."""
        return self.width % self.lanes == 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(groups, blocks, lanes)."""
        return self.groups, self.blocks, self.lanes


def channel_blocks(operator: Operator, form: AccumulateForm | ChannelwiseForm) -> ChannelBlocks:
    """The blocks of a convolution's output channels, or of a matrix product's columns."""
    if isinstance(operator, MatrixMultiply):
        return ChannelBlocks(1, operator.columns, form.lanes)
    assert isinstance(operator, Convolution)
    if isinstance(form, ChannelwiseForm):
        return ChannelBlocks(1, operator.output_channels, 1 if form.along_columns else form.lanes)
    return ChannelBlocks(operator.group_count, operator.output_channels // operator.group_count, form.lanes)


#: From this many elements behind the axis on, a row of them has one parameter.
LONG_ROW = 32


@dataclass(frozen=True)
class Rows:
    """How parameters per axis lie along the flat tensor.

    Args:
        count: length of the axis.
        inner: elements behind the axis.
        segment: elements after which the pattern of the parameters starts again, or one row of one parameter.
        spread: whether a vector of `segment` parameters is read along with the elements.
    """

    count: int
    inner: int
    segment: int
    spread: bool


def rows_of(operator: Any, form: ElementwiseForm) -> Rows:
    """The arrangement of an elementwise operator's parameters."""
    shape = operator.input.shape
    if not any(tensor.is_parameter and tensor.shape != () for tensor in operator.tensors):
        return Rows(1, operator.input.elements, operator.input.elements, spread=False)
    inner = math.prod(shape[operator.axis + 1 :])
    count = shape[operator.axis]
    if operator.input.elements == 0:
        return Rows(count, 1, 1, spread=False)
    if inner >= LONG_ROW:
        return Rows(count, inner, inner, spread=False)
    pattern = count * inner
    repeats = -(-form.lanes // pattern) if pattern < form.lanes else 1
    return Rows(count, inner, min(pattern * repeats, operator.input.elements), spread=True)
