"""NumPy reference of the convolutions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..spec import Convolution, ConvolutionInteger, QuantizedLinearConvolution
from .rounding import Array, Values, along_axis, requantize, wrap_int32, zero_point


def quantized_linear_convolution(operator: QuantizedLinearConvolution, values: Values) -> dict[str, Array]:
    """output: int8 or uint8 [N, O, OH, OW], [N, O, OW] or, with "NHWC", channels last.

    acc = sum((input - input_zero_point) * (filter - filter_zero_point)) + bias, int32, modulo 2^32;
    m = f32(f32(input_scale * filter_scale) / output_scale);
    output = RHE(clamp(f32(acc) * m, qmin - output_zero_point, qmax - output_zero_point)) + output_zero_point.
    """
    bias = values["bias"] if operator.bias else np.zeros((), np.int32)
    rank = len(operator.input.shape)
    sums = wrap_int32(_sums(operator, values) + along_axis(bias, 1, rank))
    multiplier = values["input_scale"] * values["filter_scale"] / values["output_scale"]  # float32 at every step
    codes = requantize(
        sums,
        along_axis(np.asarray(multiplier), 1, rank),
        zero_point(values, "output_zero_point"),
        operator.output_range,
        operator.output_dtype,
    )
    return {"output": _in_layout(operator, codes)}


def convolution_integer(operator: ConvolutionInteger, values: Values) -> dict[str, Array]:
    """output: int32 [N, O, OH, OW], [N, O, OW] or, with "NHWC", channels last.

    output = sum((input - input_zero_point) * (filter - filter_zero_point)), modulo 2^32.
    """
    return {"output": _in_layout(operator, wrap_int32(_sums(operator, values)))}


def _sums(operator: Convolution, values: Values) -> Array:
    """The sums before wrapping, int64 [N, O, spatial...]: one matrix product per position of the filter."""
    data, filters = values["input"], values["filter"]
    if operator.channels_last:
        data, filters = np.moveaxis(data, -1, 1), np.moveaxis(filters, -1, 1)
    rank = data.ndim
    # float64 goes through BLAS and is exact: |product| <= 255 * 255, so sums stay below 2^53 up to 2^37 products
    centred_data = data.astype(np.float64) - zero_point(values, "input_zero_point")
    centred_filters = filters.astype(np.float64) - along_axis(zero_point(values, "filter_zero_point"), 0, rank)
    strides, dilations = operator.strides or (), operator.dilations or ()
    # a padded element is the input's zero point, hence 0 once centred
    padded = np.pad(
        centred_data,
        [(0, 0), (0, 0), *zip(operator.start_padding or (), operator.end_padding or (), strict=True)],
    )
    groups = operator.group_count
    sums = np.zeros((operator.batch, groups, operator.output_channels // groups, 1), np.float64)
    for position in itertools.product(*map(range, operator.filter_spatial)):
        starts = [index * dilation for index, dilation in zip(position, dilations, strict=True)]
        taps: Any = tuple(
            slice(start, start + (size - 1) * stride + 1, stride)
            for start, size, stride in zip(starts, operator.output_spatial, strides, strict=True)
        )
        everything: Any = (slice(None), slice(None))
        window = padded[everything + taps].reshape(operator.batch, groups, operator.filter_channels, -1)
        weights = centred_filters[everything + position].reshape(groups, -1, operator.filter_channels)
        sums = sums + weights @ window
    return sums.astype(np.int64).reshape(operator.batch, operator.output_channels, *operator.output_spatial)


def _in_layout(operator: Convolution, output: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(output, 1, -1)) if operator.channels_last else output
