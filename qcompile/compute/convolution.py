"""Convolution as TE: centre, accumulate, requantize, with the channels in blocks of lanes.

input --centred--> int16, zero point subtracted, padding 0 ---+
filter --packed_filter--> int16, zero point subtracted --------+--accumulate--> int32
int32 --requantize (bias, multiplier, zero point)--> codes in blocks --output--> the output's layout
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..spec import Convolution, ConvolutionInteger
from . import channelwise
from .blocked import (
    Place,
    Total,
    as_uint8,
    centred_filter,
    channel_of_lane,
    joined,
    offset_of,
    place_of_depth,
    requantized_channels,
    select,
)
from .computation import Builder, Computation
from .form import AccumulateForm, ChannelBlocks, ChannelwiseForm
from .geometry import Geometry
from .transposed import transposed_input


def convolution(operator: Convolution, known: frozenset[str], form: AccumulateForm | ChannelwiseForm) -> Computation:
    """The TE of QuantizedLinearConvolution and ConvolutionInteger; a 1-D one is 2-D with a height of 1."""
    if isinstance(form, ChannelwiseForm):
        return channelwise.convolution(operator, known, form)
    build = Builder(operator, known)
    geometry = Geometry(operator, form)
    blocks = geometry.blocks
    centred = _centred_input(build, geometry)
    packed = _packed_filter(build, geometry)
    extents = (*geometry.taps, *form.depth_shape(geometry.depth))
    axes = [
        te.reduce_axis((0, extent), name=name) for name, extent in zip(("kh", "kw", "c", "p"), extents, strict=False)
    ]

    def product(n: Any, h: Any, w: Any, g: Any, b: Any, i: Any) -> Any:
        kh, kw, *depth = axes
        row, column = (
            position * stride + tap * dilation
            for position, stride, tap, dilation in zip(
                (h, w), geometry.strides, (kh, kw), geometry.dilations, strict=True
            )
        )
        place = (n, row, g, column * geometry.centred_channels + joined(form, depth))
        weight = (g, b, kh, kw, depth[0], i, *depth[1:])
        return te.sum(centred[place].astype("int32") * packed[weight].astype("int32"), axis=axes)

    shape = (operator.batch, *geometry.computed, *blocks.shape)
    codes = te.compute(shape, product, name="accumulate")
    total_of = _with_zero_point(build, operator, blocks, packed, codes) if form.raw_data else codes.__getitem__
    if not isinstance(operator, ConvolutionInteger):
        codes = requantized_channels(build, operator, blocks, codes.shape, total_of)
    elif form.raw_data:
        codes = te.compute(codes.shape, lambda *indices: total_of(indices), name="shifted")
    return build.finish([("output", _convolution_output(geometry, codes))])


def _with_zero_point(
    build: Builder, operator: Convolution, blocks: ChannelBlocks, packed: te.Tensor, sums: te.Tensor
) -> Total:
    """Sums of products with raw data -> with centred data: sum((x - z) * w) = sum(x * w) - z * sum(w), modulo 2^32."""
    extents = [int(packed.shape[axis]) for axis in (2, 3, 4, 6)]
    axes = [
        te.reduce_axis((0, extent), name=name) for name, extent in zip(("kh", "kw", "c", "p"), extents, strict=True)
    ]

    def filter_sum(g: Any, b: Any, i: Any) -> Any:
        kh, kw, c, p = axes
        return te.sum(packed[g, b, kh, kw, c, i, p].astype("int32"), axis=axes)

    filter_sums = build.derived("filter_sums", ("filter", "filter_zero_point"), "int32", blocks.shape, filter_sum)
    zero_point = build.scalar_or_vector("input_zero_point", "int32")
    offset = offset_of(operator.input.dtype)
    return lambda indices: sums[indices] - (zero_point(0) + offset) * filter_sums[indices[-3:]]


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
    """int16 [groups, blocks, taps..., depth, lanes (, 2)], the zero point subtracted, 0 in the empty places."""
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

    dtype = "int8" if form.raw_data else "int16"
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
