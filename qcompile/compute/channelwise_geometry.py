"""Sizes of a convolution in a channelwise arrangement."""

from __future__ import annotations

import math
from typing import Any

from ..spec import Convolution
from .form import ChannelwiseForm, channel_blocks
from .geometry import effective, transposed_channels, two_axes


class ChannelwiseGeometry:
    """Sizes of a convolution with two spatial axes; a 1-D one has a height of 1.

    Where taps are paired, a tap of the sums is two rows of the filter, or two columns of a filter with one row.
    """

    def __init__(self, operator: Convolution, form: ChannelwiseForm):
        self.operator = operator
        self.form = form
        self.input = two_axes(operator, operator.input_spatial, 1)
        self.output = two_axes(operator, operator.output_spatial, 1)
        self.kernel = two_axes(operator, operator.filter_spatial, 1)
        self.strides = effective(two_axes(operator, operator.strides, 1), self.output)
        self.dilations = effective(two_axes(operator, operator.dilations, 1), self.kernel)
        self.start_padding = two_axes(operator, operator.start_padding, 0)
        self.filter_channels = operator.filter_channels
        self.blocks = channel_blocks(operator, form)
        self.pair_axis = 0 if self.kernel[0] > 1 else 1
        steps = list(self.dilations)
        taps = list(self.kernel)
        if form.pairs == 2:
            steps[self.pair_axis] *= 2
            taps[self.pair_axis] = -(-taps[self.pair_axis] // 2)
        self.taps = taps[0], taps[1]
        #: input positions from one tap of the sums to the next
        self.steps = steps[0], steps[1]
        #: vectors of columns, or columns, that are computed: whole tiles
        width = -(-self.output[1] // form.lanes) if form.along_columns else self.output[1]
        self.vectors = self.columns = -(-width // form.tile) * form.tile
        #: input rows (and columns) from one centred row (column) to the next
        self.row_step = self._common_step(0)
        self.column_step = self._common_step(1)
        self.rows = ((self.output[0] - 1) * self.strides[0] + (self.taps[0] - 1) * self.steps[0]) // self.row_step + 1
        last_tap = (self.taps[1] - 1) * self.steps[1]
        if form.along_columns:
            #: columns modulo the stride that some tap reads
            self.phases = 1 if self.column_step == self.strides[1] else self.strides[1]
            self.centred_columns = self.columns * form.lanes + last_tap // self.strides[1]
        else:
            self.phases = 1
            self.centred_columns = ((self.columns - 1) * self.strides[1] + last_tap) // self.column_step + 1

    def _common_step(self, axis: int) -> int:
        return math.gcd(self.strides[axis], self.steps[axis] if self.taps[axis] > 1 else 0)

    @property
    def inner_columns(self) -> tuple[int, int]:
        """The first centred column, and their number, of those that lie in the input with their pairs and phases."""
        step = self.strides[1] if self.form.along_columns else self.column_step
        reach = self.phases - 1 + (self.pair_offset[1] if self.form.pairs == 2 else 0)
        first = -(-self.start_padding[1] // step)
        end = (self.start_padding[1] + self.input[1] - 1 - reach) // step + 1
        return first, min(end, self.centred_columns) - first

    @property
    def transposed_channels(self) -> int:
        """Channels of the blocks in which an NCHW input is transposed first; 0 where it is read as it is."""
        if self.form.along_columns or self.operator.channels_last:
            return 0
        return transposed_channels(self.operator.channels, self.input[0] * self.input[1])

    @property
    def pair_offset(self) -> tuple[int, int]:
        """Rows and columns from the first element of a pair to the second."""
        return (self.dilations[0], 0) if self.pair_axis == 0 else (0, self.dilations[1])

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """Of the packed filter."""
        lanes = () if self.form.along_columns else (self.form.lanes,)
        pairs = (2,) if self.form.pairs == 2 else ()
        return (self.blocks.blocks, self.filter_channels, *self.taps, *lanes, *pairs)

    def first_channel(self, output_channel: Any) -> Any:
        """The first input channel of an output channel's group."""
        group_width = self.operator.output_channels // self.operator.group_count
        return (output_channel // group_width) * self.filter_channels

    def row_of(self, position: Any, tap: Any) -> Any:
        """The centred row of an output row and a tap."""
        return position * (self.strides[0] // self.row_step) + tap * (self.steps[0] // self.row_step)

    def column_of(self, position: Any, tap: Any) -> Any:
        """The centred column of an output column and a tap."""
        return position * (self.strides[1] // self.column_step) + tap * (self.steps[1] // self.column_step)

    def phase_of(self, tap: Any) -> tuple[Any, Any]:
        """Along the columns: the phase of a tap, and its distance in columns of that phase."""
        if self.phases == 1:
            return 0, tap * (self.steps[1] // self.strides[1])
        return tap * self.steps[1] % self.strides[1], tap * self.steps[1] // self.strides[1]

    def inside(self, axis: int, position: Any) -> list[Any]:
        """Conditions under which a position of the padded input lies in the input."""
        first, size = self.start_padding[axis], self.input[axis]
        return [*([position >= first] if first > 0 else []), position < first + size]
