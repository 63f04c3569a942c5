"""Constants folded at compile time: filters packed, scales combined, parameters spread, in NumPy.

Each function computes what the stage of the same name in `compute` would compute in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compute.channelwise_geometry import ChannelwiseGeometry
from ..compute.form import AccumulateForm, ChannelBlocks, ChannelwiseForm, channel_blocks, rows_of
from ..compute.geometry import Geometry
from ..spec import Convolution, MatrixMultiply, Operator

Array = npt.NDArray[Any]
Values = Mapping[str, Array]


def fold(name: str, operator: Operator, form: Any, values: Values) -> Array:
    """The value of a constant argument: a tensor of the operator, or the folded quantity `name`.

    Args:
        name: the argument's name.
        operator: the operator.
        form: the arrangement that the rule chose.
        values: canonical values of all tensors that are constants.
    """
    if name in values:
        return values[name]
    return _FOLDED[name](operator, form, values)


def _zero_point(values: Values, name: str) -> Any:
    return values[name].astype(np.int16) if name in values else np.int16(0)


def _without_zero_points(values: Values) -> Values:
    return {name: value for name, value in values.items() if "zero_point" not in name}


def _packed_codes(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    """The packed filter without its zero point, which is not known."""
    return _packed_filter(operator, form, _without_zero_points(values))


def _packed_filter(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    """int16 with the output channels in blocks of lanes: see compute.convolution."""
    if isinstance(operator, Convolution):
        return _packed_convolution_filter(operator, form, values)
    assert isinstance(operator, MatrixMultiply)
    return _packed_columns(values["b"].astype(np.int16) - _zero_point(values, "b_zero_point"), operator, form)


def _packed_bytes(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    """The packed codes in their own type, or as int8, to which uint8 is moved by -128."""
    name = "filter" if isinstance(operator, Convolution) else "b"
    own = operator.tensor(name).dtype
    codes, dtype = values[name], form.filter_dtype(own)
    moved = codes if own == dtype else (codes.astype(np.int16) - 128).astype(dtype)
    return _packed_codes(operator, form, {name: moved}).astype(dtype)


def _packed_columns(matrix: Array, operator: Operator, form: AccumulateForm) -> Array:
    """[..., K, N] -> [..., blocks, K, lanes (, 2)]."""
    blocks = channel_blocks(operator, form)
    padded = _pad_last(matrix, blocks.blocks * blocks.lanes, 0)
    split = padded.reshape(*padded.shape[:-1], blocks.blocks, blocks.lanes)
    return _paired(np.moveaxis(split, -2, -3), form)


def _packed_convolution_filter(operator: Convolution, form: AccumulateForm, values: Values) -> Array:
    weights = values["filter"].astype(np.int16)
    channel_axis = -1 if operator.channels_last else 1
    weights = np.moveaxis(weights, channel_axis, -1)  # [O, spatial..., C]
    zero_point = _zero_point(values, "filter_zero_point")
    weights = weights - (zero_point.reshape(-1, *(1,) * (weights.ndim - 1)) if np.ndim(zero_point) else zero_point)
    if operator.spatial_rank == 1:
        weights = weights[:, None]
    if isinstance(form, ChannelwiseForm):
        return _packed_channelwise(weights, ChannelwiseGeometry(operator, form))
    geometry = Geometry(operator, form)
    weights = weights.reshape(len(weights), *geometry.taps, geometry.depth)
    by_channel = _blocked(np.moveaxis(weights, 0, -1), geometry.blocks, 0)  # [taps..., depth, groups, blocks, lanes]
    return _paired(by_channel.transpose(3, 4, 0, 1, 2, 5), form)


def _packed_channelwise(weights: Array, geometry: ChannelwiseGeometry) -> Array:
    """[O, KH, KW, C / G] -> [blocks, C / G, taps..., lanes (, 2)] or [O, C / G, taps... (, 2)]."""
    form, blocks = geometry.form, geometry.blocks
    if form.pairs == 2:
        axis = 1 + geometry.pair_axis
        widths = [(0, weights.shape[axis] % 2 if position == axis else 0) for position in range(4)]
        padded = np.pad(weights, widths)
        split = padded.reshape(*padded.shape[:axis], padded.shape[axis] // 2, 2, *padded.shape[axis + 1 :])
        weights = np.moveaxis(split, axis + 1, -1)
    by_channel = np.moveaxis(weights, 3, 1)  # [O, C / G, taps... (, 2)]
    if form.along_columns:
        return np.ascontiguousarray(by_channel)
    blocked = _blocked(np.moveaxis(by_channel, 0, -1), blocks, 0)  # [C / G, taps... (, 2), 1, blocks, lanes]
    blocked = blocked[..., 0, :, :]
    return np.ascontiguousarray(blocked.transpose((4, 0, 1, 2, 5, 3) if form.pairs == 2 else (3, 0, 1, 2, 4)))


def _narrow_filter(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    """The packed filter as int8; the rule has made sure that it fits."""
    packed = _packed_filter(operator, form, values)
    narrow = packed.astype(np.int8)
    if not np.array_equal(narrow, packed):
        raise AssertionError("the filter does not fit int8")
    return narrow


def _filter_sums(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    """The sums of the packed filter over all but channels and batches, int32."""
    packed = (_packed_bytes if form.raw_weights else _packed_filter)(operator, form, values)
    axes = (2, 3, 4, 6) if isinstance(operator, Convolution) else (-3, -1)
    return np.asarray(packed.sum(axis=axes, dtype=np.int32))


def _offsets(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    """The bias - zero point of the data * sum of the centred filter, int32: see compute.correction."""
    data = operator.tensors[0]
    packed = _packed_filter(operator, form, values)
    axes = (2, 3, 4, 6) if isinstance(operator, Convolution) else (-3, -1)
    sums = packed.sum(axis=axes, dtype=np.int64)
    zero_point = int(values.get(f"{data.name}_zero_point", 0)) + (128 if data.dtype == "int8" else 0)
    bias = _packed_bias(operator, form, values) if "bias" in values else np.zeros(1, np.int32)
    bias = bias.astype(np.int64).reshape(bias.shape[-sums.ndim :])
    return np.asarray(bias - zero_point * sums).astype(np.int32)


def _paired(filters: Array, form: AccumulateForm) -> Array:
    """[..., depth, lanes] -> the same, or [..., depth / pairs, lanes, pairs] filled up with 0."""
    if form.pairs == 1:
        return np.ascontiguousarray(filters)
    outer, pairs = form.depth_shape(filters.shape[-2])
    widths = [(0, 0)] * (filters.ndim - 2) + [(0, outer * pairs - filters.shape[-2]), (0, 0)]
    padded = np.pad(filters, widths).reshape(*filters.shape[:-2], outer, pairs, filters.shape[-1])
    return np.ascontiguousarray(np.moveaxis(padded, -2, -1))


def _blocked(array: Array, blocks: ChannelBlocks, filler: float) -> Array:
    """[..., channels] -> [..., groups, blocks, lanes], `filler` in the empty lanes."""
    grouped = array.reshape(*array.shape[:-1], blocks.groups, blocks.width)
    padded = _pad_last(grouped, blocks.blocks * blocks.lanes, filler)
    return padded.reshape(*array.shape[:-1], *blocks.shape)


def _pad_last(array: Array, length: int, filler: float) -> Array:
    widths = [(0, 0)] * (array.ndim - 1) + [(0, length - array.shape[-1])]
    return np.pad(array, widths, constant_values=filler)


def _packed_bias(operator: Operator, form: AccumulateForm, values: Values) -> Array:
    return _blocked(values["bias"], channel_blocks(operator, form), 0)


def _multiplier(operator: Operator, form: Any, values: Values) -> Array:
    """f32(f32(input scale * filter scale) / output scale) in blocks, or f32(input_scale / output_scale) spread."""
    if not isinstance(form, (AccumulateForm, ChannelwiseForm)):
        quotient = np.divide(values["input_scale"], values["output_scale"], dtype=np.float32)
        return _spread(operator, form, quotient)
    first, second = ("input_scale", "filter_scale") if isinstance(operator, Convolution) else ("a_scale", "b_scale")
    product = np.multiply(values[first], values[second], dtype=np.float32)
    multiplier = np.divide(product, values["output_scale"], dtype=np.float32)
    blocks = channel_blocks(operator, form)
    return _blocked(np.broadcast_to(multiplier, (blocks.groups * blocks.width,)), blocks, 1.0)


def _spread(operator: Operator, form: Any, parameter: Array) -> Array:
    """A parameter per tensor as [1], per axis as the vector that repeats along the rows."""
    if parameter.ndim == 0:
        return parameter.reshape(1)
    rows = rows_of(operator, form)
    if not rows.spread:
        return parameter
    return np.resize(np.repeat(parameter, rows.inner), rows.segment)


def _spread_tensor(name: str, dtype: str | None = None) -> Callable[[Operator, Any, Values], Array]:
    return lambda operator, form, values: _spread(operator, form, values[name].astype(dtype or values[name].dtype))


_FOLDED: dict[str, Callable[[Operator, Any, Values], Array]] = {
    "packed_filter": _packed_filter,
    "packed_codes": _packed_codes,
    "packed_bytes": _packed_bytes,
    "narrow_filter": _narrow_filter,
    "filter_sums": _filter_sums,
    "offsets": _offsets,
    "packed_bias": _packed_bias,
    "multiplier": _multiplier,
    "spread_scale": _spread_tensor("scale"),
    "spread_zero_point": _spread_tensor("zero_point", "int32"),
    "spread_output_zero_point": _spread_tensor("output_zero_point", "int32"),
}
