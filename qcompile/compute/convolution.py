"""Convolution as TE: centre, accumulate, requantize, with the channels in blocks of lanes.

input --centred--> int16, zero point subtracted, padding 0 ---+
filter --packed_filter--> int16, zero point subtracted --------+--accumulate--> int32
int32 --requantize (bias, multiplier, zero point)--> codes in blocks --output--> the output's layout
"""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

from ..spec import Convolution, ConvolutionInteger
from . import channelwise
from .blocked import (
    Place,
    as_uint8,
    centred_filter,
    channel_of_lane,
    joined,
    place_of_depth,
    raw_filter,
    requantized_channels,
    select,
)
from .computation import Builder, Computation
from .correction import Sums, accumulators
from .form import AccumulateForm, ChannelwiseForm
from .geometry import Geometry
from .transposed import transposed_input


def convolution(operator: Convolution, known: frozenset[str], form: AccumulateForm | ChannelwiseForm) -> Computation:
    """The TE of QuantizedLinearConvolution and ConvolutionInteger; a 1-D one is 2-D with a height of 1."""
    if isinstance(form, ChannelwiseForm):
        return channelwise.convolution(operator, known, form)
    build = Builder(operator, known)
    geometry = Geometry(operator, form)
    blocks = geometry.blocks
    data = _Data(build, geometry)
    packed = _packed_filter(build, geometry)
    extents = (*geometry.taps, *form.depth_shape(geometry.depth))
    axes = [
        te.reduce_axis((0, extent), name=name) for name, extent in zip(("kh", "kw", "c", "p"), extents, strict=False)
    ]

    def product(n: Any, h: Any, w: Any, g: Any, b: Any, i: Any) -> Any:
        kh, kw, *depth = axes
        weight = (g, b, kh, kw, depth[0], i, *depth[1:])
        value = data(n, data.position(h, w, kh, kw), g, joined(form, depth))
        return te.sum(value * packed[weight].astype("int32"), axis=axes)

    shape = (operator.batch, *geometry.computed, *blocks.shape)
    codes = te.compute(shape, product, name="accumulate")
    sums = Sums(
        codes, "input", "filter", math.prod((*geometry.taps, geometry.depth)), blocks, packed,
        packed_axes=(2, 3, 4, 6) if form.pairs > 1 else (2, 3, 4),
        filter_place=lambda indices: indices[-3:],
        row_of=lambda indices: 0,
        row_sums=lambda: _row_sums(build, geometry, data),
        row_place=lambda indices: indices[:4],
    )  # fmt: skip
    total_of = accumulators(build, form, sums)
    if not isinstance(operator, ConvolutionInteger):
        codes = requantized_channels(build, operator, blocks, codes.shape, total_of or codes.__getitem__)
    elif total_of is not None:
        codes = te.compute(codes.shape, lambda *indices: total_of(indices), name="shifted")
    return build.finish([("output", _convolution_output(geometry, codes))])


class _Data:
    """The centred input, or the codes of the input itself where they are read in place."""

    def __init__(self, build: Builder, geometry: Geometry):
        self._geometry = geometry
        self.rows, self.columns = geometry.padded
        self._channels, self._strides = geometry.centred_channels, geometry.strides
        if geometry.is_direct:
            operator = geometry.operator
            self.rows, self.columns = geometry.input
            shape = (operator.batch, self.rows, 1, self.columns * operator.channels)
            self._tensor, self._channels = build.raw("input", shape), operator.channels
            both = zip(geometry.strides, geometry.centred_strides, strict=True)
            self._strides = tuple(stride * left_out for stride, left_out in both)
        else:
            self._tensor = _centred_input(build, geometry)

    def position(self, h: Any, w: Any, kh: Any, kw: Any) -> tuple[Any, Any]:
        """Row and column that an output position and taps read."""
        geometry = self._geometry
        if geometry.is_direct and geometry.computed[1] > geometry.output[1]:
            # columns that are rounded up read the last one; nothing of theirs is kept
            w = tirx.min(w, geometry.output[1] - 1)
        row, column = (
            place * stride + tap * dilation
            for place, stride, tap, dilation in zip((h, w), self._strides, (kh, kw), geometry.dilations, strict=True)
        )
        return row, column

    def __call__(self, n: Any, position: tuple[Any, Any], g: Any, place: Any) -> Any:
        """What is at a place in the depth of a position (row, column)."""
        row, column = position
        return self._tensor[n, row, g, column * self._channels + place].astype("int32")


def _row_sums(build: Builder, geometry: Geometry, data: _Data) -> te.Tensor:
    """The sums of the data that each output reads, int32 [N, H, W, G]: first over channels, then over taps."""
    operator = geometry.operator
    c = te.reduce_axis((0, geometry.filter_channels), name="c")
    position_sums = te.compute(
        (operator.batch, data.rows, operator.group_count, data.columns),
        lambda n, row, g, column: te.sum(data(n, (row, column), g, c), axis=c),
        name="position_sums",
    )
    kh, kw = (te.reduce_axis((0, taps), name=name) for name, taps in zip(("kh", "kw"), geometry.kernel, strict=True))

    def row_sum(n: Any, h: Any, w: Any, g: Any) -> Any:
        row, column = data.position(h, w, kh, kw)
        return te.sum(position_sums[n, row, g, column], axis=[kh, kw])

    shape = (operator.batch, *geometry.computed, operator.group_count)
    return te.compute(shape, row_sum, name="row_sums")


def _centred_input(build: Builder, geometry: Geometry) -> te.Tensor:
    """int16 [N, HP, G, row], zero point subtracted, 0 where there is no input.

    Raw data are uint8 instead, with the zero point where there is no input.
    """
    operator = geometry.operator
    height, width = geometry.input
    zero_point = build.scalar_or_vector("input_zero_point", "int16")
    start = geometry.start_padding
    row_stride, column_stride = geometry.centred_strides
    channels = geometry.centred_channels

    def outside(position: Any, first: int, size: int, extent: int, stride: int) -> list[Any]:
        """Conditions under which a position (in elements, of rows that begin with `first`) lies in the input."""
        conditions = [position >= first] if first > 0 else []
        return [*conditions, position < first + size] if (extent - 1) * stride >= first + size else conditions

    dtype = operator.input.dtype

    def element(inside: list[Any], code: Any) -> Any:
        if geometry.form.raw_data:
            return select(inside, as_uint8(code, dtype), as_uint8(zero_point(0), dtype))
        return select(inside, code.astype("int16") - zero_point(0), tirx.const(0, "int16"))

    def contiguous(n: Any, h: Any, g: Any, x: Any) -> Any:
        raw = build.raw("input", (operator.batch, height, width * channels))
        inside = outside(h * row_stride, start[0], height, geometry.padded[0], row_stride)
        inside += outside(x, start[1] * channels, width * channels, geometry.row, 1)
        return element(inside, raw[n, h * row_stride - start[0], x - start[1] * channels])

    code = transposed_input(build, operator, height * width) if geometry.transposed_channels else None

    def general(n: Any, h: Any, g: Any, x: Any) -> Any:
        w, c = x // channels, x % channels
        columns = -(-geometry.row // channels)
        inside = outside(h * row_stride, start[0], height, geometry.padded[0], row_stride)
        inside += outside(w * column_stride, start[1], width, columns, column_stride)
        inside += [c < geometry.filter_channels] if channels > geometry.filter_channels else []
        row, column, channel = h * row_stride - start[0], w * column_stride - start[1], g * geometry.filter_channels + c
        if code is not None:
            return element(inside, code(n, row * width + column, channel))
        if operator.channels_last:
            raw = build.raw("input", (operator.batch, height, width, operator.channels))
            return element(inside, raw[n, row, column, channel])
        raw = build.raw("input", (operator.batch, operator.channels, height, width))
        return element(inside, raw[n, channel, row, column])

    shape = (operator.batch, geometry.padded[0], operator.group_count, geometry.row)
    return te.compute(shape, contiguous if geometry.is_contiguous else general, name="centred")


def _packed_filter(build: Builder, geometry: Geometry) -> te.Tensor:
    """[groups, blocks, taps..., depth, lanes (, pairs)], 0 in the empty places; int16 or, with raw data, int8."""
    operator, blocks, form = geometry.operator, geometry.blocks, geometry.form
    depth = form.depth_shape(geometry.depth)
    shape = (*blocks.shape[:2], *geometry.taps, depth[0], blocks.lanes, *depth[1:])

    def place_of(g: Any, b: Any, kh: Any, kw: Any, first: Any, i: Any, *rest: Any) -> Place:
        channel, in_channels = channel_of_lane(blocks, g, b, i)
        return Place(channel, in_channels, place_of_depth(form, geometry.depth, (first, *rest))[1])

    def code_of(g: Any, b: Any, kh: Any, kw: Any, first: Any, i: Any, *rest: Any) -> Any:
        channel = channel_of_lane(blocks, g, b, i)[0]
        place, channels = joined(form, (first, *rest)), geometry.filter_channels
        column, c = (place // channels, place % channels) if geometry.flat else (kw, place)
        outputs, last = operator.output_channels, operator.channels_last
        taps = (*geometry.kernel, channels) if last else (channels, *geometry.kernel)
        raw = build.raw("filter", (outputs, *taps))
        return raw[channel, kh, column, c] if last else raw[channel, c, kh, column]

    dtype = form.filter_dtype(operator.filter.dtype)
    if form.raw_weights:
        return raw_filter(build, "filter", shape, place_of, code_of, dtype)
    return centred_filter(build, "filter", shape, place_of, code_of, operator.output_channels, dtype)


def _convolution_output(geometry: Geometry, codes: te.Tensor) -> te.Tensor:
    """The codes in the output's layout; nothing to do where the blocks are that layout already."""
    operator, blocks, lanes = geometry.operator, geometry.blocks, geometry.form.lanes
    height, width = geometry.output
    if operator.channels_last:
        if blocks.is_full and geometry.computed == geometry.output:
            return codes
        return te.compute(
            (operator.batch, height, width, blocks.groups, blocks.width),
            lambda n, h, w, g, o: codes[n, h, w, g, o // lanes, o % lanes],
            name="output",
        )
    return te.compute(
        (operator.batch, blocks.groups, blocks.width, height, width),
        lambda n, g, o, h, w: codes[n, h, w, g, o // lanes, o % lanes],
        name="output",
    )
