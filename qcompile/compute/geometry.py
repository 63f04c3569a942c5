"""Sizes of a convolution in the arrangement that a rule chose."""

from __future__ import annotations

import math

from ..spec import Convolution
from .form import AccumulateForm, channel_blocks

#: positions of a block in which an NCHW input is transposed
TRANSPOSED_POSITIONS = 16


def two_axes(operator: Convolution, values: tuple[int, ...] | None, filler: int) -> tuple[int, int]:
    """Values of the spatial axes for two of them: a 1-D convolution has a height of 1, here with `filler`."""
    height, width = (filler,) * (2 - operator.spatial_rank) + tuple(values or ())
    return height, width


def effective(steps: tuple[int, int], extents: tuple[int, int]) -> tuple[int, int]:
    """Strides or dilations, 1 where there is nothing to step to: a large one would only make indices overflow."""
    height, width = (step if extent > 1 else 1 for step, extent in zip(steps, extents, strict=True))
    return height, width


def transposed_channels(channels: int, positions: int) -> int:
    """Channels of the blocks in which an NCHW input is transposed first; 0 where it is gathered by elements."""
    if positions < TRANSPOSED_POSITIONS:
        return 0
    return next((size for size in (16, 8, 4) if channels % size == 0), 0)


def is_pointwise(operator: Convolution) -> bool:
    """Whether every output position reads the input position of the same number alone: all positions are one row."""
    return (
        math.prod(operator.filter_spatial) == 1
        and math.prod(operator.strides or ()) == 1
        and not any((*(operator.start_padding or ()), *(operator.end_padding or ())))
    )


def row_positions(operator: Convolution) -> int:
    """Output positions of a row: the columns, or all positions of a pointwise convolution."""
    return math.prod(operator.output_spatial) if is_pointwise(operator) else operator.output_spatial[-1]


class Geometry:
    """Sizes of a convolution with two spatial axes; a 1-D one has a height of 1.

    Each row of the centred input holds its columns side by side, and in each the channels of a group. The taps of a row
    that are not dilated are then neighbours too: they count as one tap with `depth` channels.
    """

    def __init__(self, operator: Convolution, form: AccumulateForm):
        self.operator = operator
        self.form = form
        self.input = two_axes(operator, operator.input_spatial, 1)
        self.output = two_axes(operator, operator.output_spatial, 1)
        if is_pointwise(operator):
            self.input = self.output = 1, math.prod(operator.output_spatial)
        self.kernel = two_axes(operator, operator.filter_spatial, 1)
        strides = effective(two_axes(operator, operator.strides, 1), self.output)
        self.dilations = effective(two_axes(operator, operator.dilations, 1), self.kernel)
        self.start_padding = two_axes(operator, operator.start_padding, 0)
        #: input positions from one centred position to the next: what no tap reads is left out
        self.centred_strides = tuple(
            stride if taps == 1 else 1 for stride, taps in zip(strides, self.kernel, strict=True)
        )
        self.strides = tuple(1 if taps == 1 else stride for stride, taps in zip(strides, self.kernel, strict=True))
        self.filter_channels = operator.filter_channels
        self.group_width = operator.output_channels // operator.group_count
        self.blocks = channel_blocks(operator, form)
        #: whether the taps of a row are neighbours
        self.flat = self.dilations[1] == 1 or self.kernel[1] == 1
        #: taps that are reduction axes of their own
        self.taps = self.kernel[0], 1 if self.flat else self.kernel[1]
        #: neighbours that one tap reads
        self.depth = self.filter_channels * (self.kernel[1] if self.flat else 1)
        #: channels of one centred position
        self.centred_channels = (
            self.filter_channels if self.flat else -(-self.filter_channels // form.pairs) * form.pairs
        )
        #: output positions that are computed: rows are rounded up to whole tiles
        self.computed = self.output[0], -(-self.output[1] // form.tile) * form.tile
        #: centred positions that the computed positions read
        self.padded = tuple(
            (positions - 1) * stride + (taps - 1) * dilation + 1
            for positions, stride, taps, dilation in zip(
                self.computed, self.strides, self.kernel, self.dilations, strict=True
            )
        )
        surplus = -self.depth % form.pairs
        #: elements of a centred row: the last pair may reach beyond the last position
        self.row = self.padded[1] * self.centred_channels + (surplus if self.flat else 0)

    @property
    def is_direct(self) -> bool:
        """Whether raw data are read where they are: every group of neighbours lies within a position's row."""
        operator = self.operator
        return (
            self.form.raw_data
            and operator.input.dtype == "uint8"
            and operator.channels_last
            and operator.group_count == 1
            and self.depth % self.form.pairs == 0
            and not any((*(operator.start_padding or ()), *(operator.end_padding or ())))
        )

    @property
    def transposed_channels(self) -> int:
        """As the function of this name; 0 for an NHWC input and for groups."""
        operator = self.operator
        is_whole = operator.group_count == 1 and not operator.channels_last
        return transposed_channels(operator.channels, self.input[0] * self.input[1]) if is_whole else 0

    @property
    def is_contiguous(self) -> bool:
        """Whether a centred row is a part of an input row, in the same order."""
        return (
            self.operator.channels_last
            and self.operator.group_count == 1
            and self.flat
            and (self.centred_strides[1] == 1)
        )
