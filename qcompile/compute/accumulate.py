"""Convolution and matrix product as TE: centre, accumulate, requantize, with the channels in blocks of lanes.

input --centred--> int16, zero point subtracted, padding 0 ---+
filter --packed_filter--> int16, zero point subtracted --------+--accumulate--> int32
int32 --requantize (bias, multiplier, zero point)--> codes in blocks --output--> the output's layout
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ..spec import Convolution, ConvolutionInteger, MatrixMultiply, MatrixMultiplyInteger
from .computation import Builder, Computation
from .form import AccumulateForm, ChannelBlocks, channel_blocks
from .rounding import float32, saturated_code


def convolution(operator: Convolution, known: frozenset[str], form: AccumulateForm) -> Computation:
    """The TE of QuantizedLinearConvolution and ConvolutionInteger; a 1-D one is 2-D with a height of 1."""
    build = Builder(operator, known)
    geometry = Geometry(operator, form)
    blocks = geometry.blocks
    centred = _centred_input(build, geometry)
    packed = _packed_filter(build, geometry)
    extents = (*geometry.kernel, *form.depth_shape(geometry.filter_channels))
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
        place = (n, row, column, *depth, b, i) if form.channelwise else (n, row, column, g, *depth)
        weight = (g, b, kh, kw, depth[0], i, *depth[1:])
        return te.sum(centred[place].astype("int32") * packed[weight].astype("int32"), axis=axes)

    shape = (operator.batch, *geometry.computed, *blocks.shape)
    codes = te.compute(shape, product, name="accumulate")
    if not isinstance(operator, ConvolutionInteger):
        codes = _requantized_channels(build, operator, blocks, codes, "filter_scale", "input_scale")
    return build.finish([("output", _convolution_output(geometry, codes))])


class Geometry:
    """Sizes of a convolution with two spatial axes, in the arrangement of `form`."""

    def __init__(self, operator: Convolution, form: AccumulateForm):
        def two(values: tuple[int, ...] | None, filler: int) -> tuple[int, int]:
            height, width = (filler,) * (2 - operator.spatial_rank) + tuple(values or ())
            return height, width

        self.operator = operator
        self.form = form
        self.input = two(operator.input_spatial, 1)
        self.output = two(operator.output_spatial, 1)
        self.kernel = two(operator.filter_spatial, 1)
        self.strides = two(operator.strides, 1)
        self.dilations = two(operator.dilations, 1)
        self.start_padding = two(operator.start_padding, 0)
        self.filter_channels = operator.filter_channels
        self.group_width = operator.output_channels // operator.group_count
        self.blocks = channel_blocks(operator, form)
        #: output positions that are computed: rows are rounded up to whole tiles
        self.computed = self.output[0], -(-self.output[1] // form.tile) * form.tile
        #: extent of the centred input that the computed positions read
        self.padded = tuple(
            (positions - 1) * stride + (taps - 1) * dilation + 1
            for positions, stride, taps, dilation in zip(
                self.computed, self.strides, self.kernel, self.dilations, strict=True
            )
        )


def _centred_input(build: Builder, geometry: Geometry) -> te.Tensor:
    """int16 [N, HP, WP, G, C / G] (in pairs: [..., C / G / 2, 2]), or [N, HP, WP, C / G, blocks, lanes] channelwise."""
    operator = geometry.operator
    last = operator.channels_last
    height, width = geometry.input
    shape = (operator.batch, height, width, operator.channels)
    raw = build.raw("input", shape if last else (operator.batch, operator.channels, height, width))
    zero_point = build.scalar_or_vector("input_zero_point", "int16")

    def element(n: Any, h: Any, w: Any, channel: Any, valid: list[Any]) -> Any:
        row, column = h - geometry.start_padding[0], w - geometry.start_padding[1]
        value = raw[n, row, column, channel] if last else raw[n, channel, row, column]
        inside = [
            condition
            for position, size, start, extent in zip(
                (row, column), geometry.input, geometry.start_padding, geometry.padded, strict=True
            )
            for condition, needed in (
                (position >= 0, start > 0),
                (position < size, extent - start > size),
            )
            if needed
        ]
        return _select([*inside, *valid], value.astype("int16") - zero_point(0), tirx.const(0, "int16"))

    if geometry.form.channelwise:
        blocks = geometry.blocks

        def expanded(n: Any, h: Any, w: Any, c: Any, b: Any, i: Any) -> Any:
            output_channel = b * blocks.lanes + i
            valid = [] if blocks.is_full else [output_channel < blocks.width]
            group = output_channel // geometry.group_width
            return element(n, h, w, group * geometry.filter_channels + c, valid)

        channelwise = (operator.batch, *geometry.padded, geometry.filter_channels, blocks.blocks, blocks.lanes)
        return te.compute(channelwise, expanded, name="centred")

    def grouped(n: Any, h: Any, w: Any, g: Any, *depth: Any) -> Any:
        c, valid = _depth(geometry.form, geometry.filter_channels, depth)
        return element(n, h, w, g * geometry.filter_channels + c, valid)

    depth_shape = geometry.form.depth_shape(geometry.filter_channels)
    return te.compute((operator.batch, *geometry.padded, operator.group_count, *depth_shape), grouped, name="centred")


def _depth(form: AccumulateForm, depth: int, indices: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """The input channel of the depth axes, and the condition under which it exists."""
    if form.pairs == 1:
        return indices[0], []
    channel = indices[0] * form.pairs + indices[1]
    return channel, [channel < depth] if depth % form.pairs else []


def _packed_filter(build: Builder, geometry: Geometry) -> te.Tensor:
    """int16 [groups, blocks, KH, KW, C / G, lanes (, 2)], the zero point subtracted, 0 in the empty places."""
    operator, blocks, form = geometry.operator, geometry.blocks, geometry.form
    depth = form.depth_shape(geometry.filter_channels)
    shape = (*blocks.shape[:2], *geometry.kernel, depth[0], blocks.lanes, *depth[1:])

    def codes(g: Any, b: Any, kh: Any, kw: Any, first: Any, i: Any, *rest: Any) -> tuple[Any, Any, list[Any]]:
        c, exists = _depth(form, geometry.filter_channels, (first, *rest))
        outputs, channels = operator.output_channels, geometry.filter_channels
        raw = build.raw(
            "filter",
            (outputs, *geometry.kernel, channels) if operator.channels_last else (outputs, channels, *geometry.kernel),
        )
        channel, valid = _channel(blocks, g, b, i)
        value = raw[channel, kh, kw, c] if operator.channels_last else raw[channel, c, kh, kw]
        return value.astype("int16"), channel, [*valid, *exists]

    def channel_of(g: Any, b: Any, kh: Any, kw: Any, first: Any, i: Any, *rest: Any) -> Any:
        return _channel(blocks, g, b, i)[0]

    return _centred_filter(build, "filter", shape, codes, channel_of, operator.output_channels)


def _centred_filter(
    build: Builder,
    name: str,
    shape: tuple[int, ...],
    codes: Callable[..., tuple[Any, Any, list[Any]]],
    channel_of: Callable[..., Any],
    channels: int,
) -> te.Tensor:
    """int16 of that shape: the packed codes minus their zero point.

    Args:
        build: the computation.
        name: of the tensor of codes.
        shape: of the packed tensor.
        codes: indices -> (code as int16, its channel, conditions under which there is one).
        channel_of: indices -> the channel alone.
        channels: number of channels.
    """
    zero_name = f"{name}_zero_point"
    zero = tirx.const(0, "int16")

    def centred(*indices: Any) -> Any:
        value, channel, conditions = codes(*indices)
        return _select(conditions, value - build.scalar_or_vector(zero_name, "int16")(channel), zero)

    def packed_codes(*indices: Any) -> Any:
        value, _, conditions = codes(*indices)
        return _select(conditions, value, zero)

    is_half_known = name in build.known and build.exists(zero_name) and zero_name not in build.known
    if not is_half_known:
        return build.derived("packed_filter", (name, zero_name), "int16", shape, centred)
    # the costly part is folded; empty places meet inputs that are 0, or give sums that nobody keeps
    packed = build.derived("packed_codes", (name,), "int16", shape, packed_codes)
    zero_point = build.scalar_or_vector(zero_name, "int16")

    def shifted(*indices: Any) -> Any:
        return packed[indices] - zero_point(tirx.min(channel_of(*indices), channels - 1))

    return te.compute(shape, shifted, name="packed_filter")


def _channel(blocks: ChannelBlocks, g: Any, b: Any, i: Any) -> tuple[Any, list[Any]]:
    """The channel of a lane, and the condition under which the lane is not empty."""
    within = b * blocks.lanes + i
    valid = [] if blocks.is_full else [within < blocks.width]
    return g * blocks.width + within, valid


def _select(conditions: list[Any], value: Any, otherwise: Any) -> Any:
    return tirx.if_then_else(tirx.all(*conditions), value, otherwise) if conditions else value


def _blocked_parameters(
    build: Builder, blocks: ChannelBlocks, input_scale: str, channel_scale: str
) -> tuple[te.Tensor, te.Tensor | None]:
    """Multiplier (float32) and bias (int32 or None), each [groups, blocks, lanes]."""

    def multiplier(g: Any, b: Any, i: Any) -> Any:
        channel, valid = _channel(blocks, g, b, i)
        one_scale = build.scalar_or_vector(input_scale, "float32")
        other_scale = build.scalar_or_vector(channel_scale, "float32")
        output_scale = build.scalar_or_vector("output_scale", "float32")
        return _select(valid, one_scale(0) * other_scale(channel) / output_scale(0), float32(1.0))

    def bias(g: Any, b: Any, i: Any) -> Any:
        channel, valid = _channel(blocks, g, b, i)
        return _select(valid, build.raw("bias")[channel], tirx.const(0, "int32"))

    scales = (input_scale, channel_scale, "output_scale")
    multipliers = build.derived("multiplier", scales, "float32", blocks.shape, multiplier)
    return multipliers, _blocked_bias(build, blocks, bias)


def _blocked_bias(build: Builder, blocks: ChannelBlocks, stage: Callable[..., Any]) -> te.Tensor | None:
    if not build.exists("bias"):
        return None
    return build.derived("packed_bias", ("bias",), "int32", blocks.shape, stage)


def _requantized_channels(
    build: Builder, operator: Any, blocks: ChannelBlocks, sums: te.Tensor, channel_scale: str, input_scale: str
) -> te.Tensor:
    """Codes of the shape of `sums` [..., groups, blocks, lanes], with parameters per channel."""
    multiplier, bias = _blocked_parameters(build, blocks, input_scale, channel_scale)
    zero_point = build.scalar_or_vector("output_zero_point", "int32")

    def stage(*indices: Any) -> Any:
        total = sums[indices] if bias is None else sums[indices] + bias[indices[-3:]]
        scaled = total.astype("float32") * multiplier[indices[-3:]]
        return saturated_code(scaled, zero_point(0), operator.output_range, operator.output_dtype)

    return te.compute(sums.shape, stage, name="requantize")


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


def matrix_multiply(operator: MatrixMultiply, known: frozenset[str], form: AccumulateForm) -> Computation:
    """The TE of QuantizedLinearMatrixMultiply and MatrixMultiplyInteger."""
    build = Builder(operator, known)
    blocks = channel_blocks(operator, form)
    rows = -(-operator.rows // form.tile) * form.tile
    batch_rank = len(operator.batch_shape)
    centred = _centred_matrix(build, operator, rows, form)
    packed = _packed_matrix(build, operator, blocks, form)
    extents = form.depth_shape(operator.depth)
    axes = [te.reduce_axis((0, extent), name=name) for name, extent in zip(("k", "p"), extents, strict=False)]

    def product(*indices: Any) -> Any:
        batch, (row, b, i) = indices[:batch_rank], indices[batch_rank:]
        a_index = (*_broadcast(batch, operator.a.shape[:-2]), row, *axes)
        b_index = (*_broadcast(batch, operator.b.shape[:-2]), b, axes[0], i, *axes[1:])
        return te.sum(centred[a_index].astype("int32") * packed[b_index].astype("int32"), axis=axes)

    codes = te.compute((*operator.batch_shape, rows, blocks.blocks, blocks.lanes), product, name="accumulate")
    if not isinstance(operator, MatrixMultiplyInteger):
        codes = _requantized_matrix(build, operator, blocks, codes)
    if blocks.is_full and rows == operator.rows:
        return build.finish([("output", codes)])

    def element(*indices: Any) -> Any:
        blocked = (*indices[:-1], indices[-1] // form.lanes, indices[-1] % form.lanes)
        return codes[blocked]

    return build.finish([("output", te.compute(operator.output_shape, element, name="output"))])


def _broadcast(batch: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The batch indices of an operand with these batch axes, by NumPy's rules."""
    own = batch[len(batch) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(own, shape, strict=True))


def _centred_matrix(build: Builder, operator: MatrixMultiply, rows: int, form: AccumulateForm) -> te.Tensor:
    """int16 [..., M rounded up, K], or [..., M rounded up, K / 2, 2]."""
    batch_rank = len(operator.a.shape) - 2
    raw = build.raw("a")
    zero_point = build.scalar_or_vector("a_zero_point", "int16")

    def stage(*indices: Any) -> Any:
        row = indices[batch_rank]
        k, exists = _depth(form, operator.depth, indices[batch_rank + 1 :])
        valid = [] if rows == operator.rows else [row < operator.rows]
        place = (*indices[:batch_rank], row, k)
        return _select([*valid, *exists], raw[place].astype("int16") - zero_point(row), tirx.const(0, "int16"))

    return te.compute((*operator.a.shape[:-2], rows, *form.depth_shape(operator.depth)), stage, name="centred")


def _packed_matrix(build: Builder, operator: MatrixMultiply, blocks: ChannelBlocks, form: AccumulateForm) -> te.Tensor:
    """int16 [..., blocks, K, lanes (, 2)], the zero point subtracted, 0 in the empty places."""
    batch_rank = len(operator.b.shape) - 2
    depth = form.depth_shape(operator.depth)

    def codes(*indices: Any) -> tuple[Any, Any, list[Any]]:
        batch, (b, first, i, *rest) = indices[:batch_rank], indices[batch_rank:]
        k, exists = _depth(form, operator.depth, (first, *rest))
        column, valid = _channel(blocks, 0, b, i)
        index = (*batch, k, column)
        return build.raw("b")[index].astype("int16"), column, [*valid, *exists]

    def column_of(*indices: Any) -> Any:
        b, _, i = indices[batch_rank : batch_rank + 3]
        return _channel(blocks, 0, b, i)[0]

    shape = (*operator.b.shape[:-2], blocks.blocks, depth[0], blocks.lanes, *depth[1:])
    return _centred_filter(build, "b", shape, codes, column_of, operator.columns)


def _requantized_matrix(build: Builder, operator: Any, blocks: ChannelBlocks, sums: te.Tensor) -> te.Tensor:
    """Codes of the shape of `sums` [..., M, blocks, lanes]; the multiplier is a matrix where rows have parameters."""
    if operator.a_scale == "per_tensor" and operator.output_scale == "per_tensor":
        multiplier, bias = _blocked_parameters(build, blocks, "a_scale", "b_scale")

        def factor(row: Any, b: Any, i: Any) -> Any:
            return multiplier[0, b, i]
    else:
        a_scale, b_scale, output_scale = (
            build.scalar_or_vector(name, "float32") for name in ("a_scale", "b_scale", "output_scale")
        )
        bias = _blocked_bias(
            build,
            blocks,
            lambda g, b, i: _select(
                _channel(blocks, g, b, i)[1], build.raw("bias")[_channel(blocks, g, b, i)[0]], tirx.const(0, "int32")
            ),
        )
        last_row, last_column = operator.rows - 1, operator.columns - 1

        def factor(row: Any, b: Any, i: Any) -> Any:
            # rows and lanes that are rounded up read the last parameter; nothing of theirs is kept
            row = tirx.min(row, last_row)
            column = tirx.min(b * blocks.lanes + i, last_column)
            return a_scale(row) * b_scale(column) / output_scale(row)

    zero_point = build.scalar_or_vector("output_zero_point", "int32")

    def stage(*indices: Any) -> Any:
        row, b, i = indices[-3:]
        total = sums[indices] if bias is None else sums[indices] + bias[0, b, i]
        own_zero_point = zero_point(tirx.min(row, operator.rows - 1))
        scaled = total.astype("float32") * factor(row, b, i)
        return saturated_code(scaled, own_zero_point, operator.output_range, operator.output_dtype)

    return te.compute(sums.shape, stage, name="requantize")
