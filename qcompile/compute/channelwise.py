"""Convolution whose output channels each have few input channels of their own (depthwise): lanes are single channels.

input --centred--> two neighbouring taps in an int32 (or one in an int16), padding 0 ---+
filter --packed_filter--> int16, zero point subtracted ----------------------------------+--accumulate--> int32
int32 --requantize--> codes --output--> the output's layout

Lanes lie along the output channels, or along the columns of the output (NCHW with long rows, which are then not
transposed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ..spec import Convolution, ConvolutionInteger
from .blocked import Place, centred_filter, channel_of_lane, packed_bias, requantized_channels, select
from .channelwise_geometry import ChannelwiseGeometry
from .computation import Builder, Computation
from .form import ChannelwiseForm
from .transposed import transposed_input


def convolution(operator: Convolution, known: frozenset[str], form: ChannelwiseForm) -> Computation:
    """The TE of a convolution in a channelwise arrangement."""
    build = Builder(operator, known)
    geometry = ChannelwiseGeometry(operator, form)
    centred = _centred_input(build, geometry)
    packed = _packed_filter(build, geometry)
    sums = _sums(geometry, centred, packed)
    if not isinstance(operator, ConvolutionInteger):
        place_of = _place_along_columns if form.along_columns else _place_along_channels
        bias, products = packed_bias(build, geometry.blocks), sums

        def total_of(indices: Any) -> Any:
            return products[indices] if bias is None else products[indices] + bias[place_of(indices)]

        sums = requantized_channels(build, operator, geometry.blocks, sums.shape, total_of, place_of)
    return build.finish([("output", _output(geometry, sums))])


def _place_along_columns(indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """(group, block, lane) of sums [N, O, OH, vectors, lanes]: every channel is a block."""
    return 0, indices[1], 0


def _place_along_channels(indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """(group, block, lane) of sums [..., 1, blocks, lanes]."""
    return indices[-3:]


def _sums(geometry: ChannelwiseGeometry, centred: te.Tensor, packed: te.Tensor) -> te.Tensor:
    """int32 [N, OH, OW, 1, blocks, lanes], or along the columns [N, O, OH, vectors, lanes]."""
    operator, form = geometry.operator, geometry.form
    c = te.reduce_axis((0, geometry.filter_channels), name="c")
    kh, kw = (te.reduce_axis((0, extent), name=name) for extent, name in zip(geometry.taps, ("kh", "kw"), strict=True))
    height = geometry.output[0]

    def product(data: Any, weights: Any) -> Any:
        if form.pairs == 1:
            return te.sum(data.astype("int32") * packed[weights].astype("int32"), axis=[c, kh, kw])
        first, second = (packed[place].astype("int32") for place in ((*weights, 0), (*weights, 1)))
        sixteen = tirx.const(16, "int32")
        low = tirx.shift_right(tirx.shift_left(data, sixteen), sixteen)
        return te.sum(low * first + tirx.shift_right(data, sixteen) * second, axis=[c, kh, kw])

    def along_channels(n: Any, h: Any, w: Any, g: Any, b: Any, i: Any) -> Any:
        row, column = geometry.row_of(h, kh), geometry.column_of(w, kw)
        return product(centred[n, row, column, c, b, i], (b, c, kh, kw, i))

    def along_columns(n: Any, o: Any, h: Any, v: Any, i: Any) -> Any:
        phase, column = geometry.phase_of(kw)
        channel = geometry.first_channel(o) + c
        data = centred[n, channel, geometry.row_of(h, kh), phase, v * form.lanes + i + column]
        return product(data, (o, c, kh, kw))

    if form.along_columns:
        shape: tuple[int, ...] = operator.batch, operator.output_channels, height, geometry.vectors, form.lanes
        return te.compute(shape, along_columns, name="accumulate")
    shape = operator.batch, height, geometry.columns, *geometry.blocks.shape
    return te.compute(shape, along_channels, name="accumulate")


def _centred_input(build: Builder, geometry: ChannelwiseGeometry) -> te.Tensor:
    """[N, rows, columns, C / G, blocks, lanes], or along the columns [N, C, rows, phases, columns]."""
    operator, form, blocks = geometry.operator, geometry.form, geometry.blocks
    code = _code_of(build, geometry)
    dtype = "int32" if form.pairs == 2 else "int16"
    zero_point = build.scalar_or_vector("input_zero_point", dtype)

    def one(n: Any, row: Any, column: Any, channel: Any, valid: list[Any]) -> Any:
        """The centred element at a position of the padded input."""
        inside = [*geometry.inside(0, row), *geometry.inside(1, column), *valid]
        h, w = row - geometry.start_padding[0], column - geometry.start_padding[1]
        return select(inside, code(n, h, w, channel).astype(dtype) - zero_point(0), tirx.const(0, dtype))

    def element(n: Any, row: Any, column: Any, channel: Any, valid: list[Any]) -> Any:
        low = one(n, row, column, channel, valid)
        if form.pairs == 1:
            return low
        down, right = geometry.pair_offset
        return _pair(low, one(n, row + down, column + right, channel, valid))

    def along_channels(n: Any, r: Any, x: Any, c: Any, b: Any, i: Any) -> Any:
        output_channel, valid = channel_of_lane(blocks, 0, b, i)
        channel = geometry.first_channel(output_channel) + c
        return element(n, r * geometry.row_step, x * geometry.column_step, channel, valid)

    def along_columns(n: Any, channel: Any, r: Any, s: Any, x: Any) -> Any:
        return element(n, r * geometry.row_step, x * geometry.strides[1] + s, channel, [])

    if form.along_columns:
        shape: tuple[int, ...] = (
            operator.batch, operator.channels, geometry.rows, geometry.phases, geometry.centred_columns,
        )  # fmt: skip
        return te.compute(shape, along_columns, name="centred")
    shape = (
        operator.batch, geometry.rows, geometry.centred_columns, geometry.filter_channels, blocks.blocks, form.lanes,
    )  # fmt: skip
    return te.compute(shape, along_channels, name="centred")


def _code_of(build: Builder, geometry: ChannelwiseGeometry) -> Callable[..., Any]:
    """(n, h, w, channel) -> the code of the input."""
    operator = geometry.operator
    height, width = geometry.input
    if geometry.transposed_channels:
        code = transposed_input(build, operator, height * width)
        return lambda n, h, w, channel: code(n, h * width + w, channel)
    if operator.channels_last:
        raw = build.raw("input", (operator.batch, height, width, operator.channels))
        return lambda n, h, w, channel: raw[n, h, w, channel]
    raw = build.raw("input", (operator.batch, operator.channels, height, width))
    return lambda n, h, w, channel: raw[n, channel, h, w]


def _pair(low: Any, high: Any) -> Any:
    """Two int16, given as int32, in the halves of an int32."""
    return tirx.bitwise_or(
        tirx.shift_left(high, tirx.const(16, "int32")), tirx.bitwise_and(low, tirx.const(0xFFFF, "int32"))
    )


def _packed_filter(build: Builder, geometry: ChannelwiseGeometry) -> te.Tensor:
    """int16 [blocks, C / G, taps..., lanes (, 2)], or along the columns [O, C / G, taps... (, 2)]."""
    operator, form, blocks = geometry.operator, geometry.form, geometry.blocks
    pairs = (2,) if form.pairs == 2 else ()

    def parts(indices: tuple[Any, ...]) -> tuple[Any, Any, Any, Any, list[Any], list[Any]]:
        """Channel, input channel, row and column of the filter, conditions."""
        b, c, kh, kw, *rest = indices
        lane = 0 if form.along_columns else rest[0]
        channel, in_channels = channel_of_lane(blocks, 0, b, lane)
        taps = [kh, kw]
        exists = []
        if pairs:
            axis = geometry.pair_axis
            taps[axis] = taps[axis] * 2 + rest[-1]
            exists = [taps[axis] < geometry.kernel[axis]] if geometry.kernel[axis] % 2 else []
        return channel, c, *taps, in_channels, exists

    def place_of(*indices: Any) -> Place:
        channel, *_, in_channels, exists = parts(indices)
        return Place(channel, in_channels, exists)

    def code_of(*indices: Any) -> Any:
        channel, c, kh, kw, *_ = parts(indices)
        outputs, channels, last = operator.output_channels, geometry.filter_channels, operator.channels_last
        taps = (*geometry.kernel, channels) if last else (channels, *geometry.kernel)
        raw = build.raw("filter", (outputs, *taps))
        return raw[channel, kh, kw, c] if last else raw[channel, c, kh, kw]

    return centred_filter(build, "filter", geometry.filter_shape, place_of, code_of, operator.output_channels)


def _output(geometry: ChannelwiseGeometry, codes: te.Tensor) -> te.Tensor:
    """The codes in the output's layout; nothing to do where they are already."""
    operator, blocks, lanes = geometry.operator, geometry.blocks, geometry.form.lanes
    height, width = geometry.output
    if geometry.form.along_columns:
        if width % lanes == 0 and geometry.vectors * lanes == width:
            return codes
        return te.compute(
            (operator.batch, operator.output_channels, height, width),
            lambda n, o, h, w: codes[n, o, h, w // lanes, w % lanes],
            name="output",
        )
    if not operator.channels_last:
        return te.compute(
            (operator.batch, operator.output_channels, height, width),
            lambda n, o, h, w: codes[n, h, w, 0, o // lanes, o % lanes],
            name="output",
        )
    if blocks.is_full and geometry.columns == width:
        return codes
    return te.compute(
        (operator.batch, height, width, operator.output_channels),
        lambda n, h, w, o: codes[n, h, w, 0, o // lanes, o % lanes],
        name="output",
    )
