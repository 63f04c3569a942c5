"""NumPy reference of the operators that change the type of every element."""

from __future__ import annotations

import numpy as np

from ..spec import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear, Requantize
from ..spec.tensor import INTEGER_RANGES
from .rounding import Array, Values, along_axis, requantize, zero_point


def requantize_sums(operator: Requantize, values: Values) -> dict[str, Array]:
    """output: int8 or uint8, the input's shape.

    m = f32(input_scale / output_scale);
    output = RHE(clamp(f32(input) * m, qmin - output_zero_point, qmax - output_zero_point)) + output_zero_point.
    """
    rank = len(operator.input.shape)
    multiplier = np.asarray(values["input_scale"] / values["output_scale"])  # float32
    codes = requantize(
        values["input"],
        along_axis(multiplier, operator.axis, rank),
        along_axis(zero_point(values, "output_zero_point"), operator.axis, rank),
        operator.output_range,
        operator.output_dtype,
    )
    return {"output": codes}


def quantize_linear(operator: QuantizeLinear, values: Values) -> dict[str, Array]:
    """output: int8, uint8, int16 or uint16, the input's shape.

    output = saturate(RHE(input / scale) + zero_point), the quotient rounded to `precision`; infinities saturate, NaN
    gives the type's minimum.
    """
    rank = len(operator.input.shape)
    scale = along_axis(values["scale"], operator.axis, rank).astype(operator.precision)
    offset = along_axis(zero_point(values, "zero_point"), operator.axis, rank)
    with np.errstate(over="ignore"):
        data = values["input"].astype(operator.precision)
    return {"output": _quantize(data, scale, offset, operator.output_dtype)}


def dequantize_linear(operator: DequantizeLinear, values: Values) -> dict[str, Array]:
    """output: float32 or float16, the input's shape.

    output = f32(f32(input - zero_point) * scale), rounded to the output's dtype.
    """
    rank = len(operator.input.shape)
    scale = along_axis(values["scale"], operator.axis, rank)
    difference = values["input"].astype(np.int64) - along_axis(zero_point(values, "zero_point"), operator.axis, rank)
    with np.errstate(over="ignore", under="ignore"):
        numbers = np.asarray(difference.astype(np.float32) * scale.astype(np.float32))
        return {"output": numbers.astype(operator.output_dtype)}


def dynamic_quantize_linear(operator: DynamicQuantizeLinear, values: Values) -> dict[str, Array]:
    """output: uint8, the input's shape; scale: float32 []; zero_point: uint8 [].

    lo = min(input, 0), hi = max(input, 0); scale = f32(f32(hi - lo) / 255);
    zero_point = RHE(clamp(f32(-lo / scale), 0, 255)); output as in QuantizeLinear.

    What the formulas leave open: a scale of 0 (only zeros, or a range that vanishes when divided) becomes 1. NaN
    elements do not count for the range and are quantized to 0. Where hi - lo is infinite, so is the scale; then
    the zero point and every element with an infinite or NaN quotient are 0, the other elements too.
    """
    data = values["input"]
    with np.errstate(all="ignore"):
        lowest = np.fmin.reduce(data, axis=None, initial=np.float32(0))
        highest = np.fmax.reduce(data, axis=None, initial=np.float32(0))
        scale = np.float32(highest - lowest) / np.float32(255)
        scale = np.float32(1) if scale == 0 else scale
        quotient = np.float32(0 - lowest) / scale
    # fmax with 0 first: a NaN quotient (infinity by infinity) gives 0
    offset = np.rint(np.fmin(np.fmax(quotient, np.float32(0)), np.float32(255)))
    codes = _quantize(data, np.asarray(scale), np.asarray(offset).astype(np.int64), "uint8")
    return {"output": codes, "scale": np.asarray(scale), "zero_point": np.asarray(offset).astype(np.uint8)}


def _quantize(data: Array, scale: Array, offset: Array, dtype: str) -> Array:
    low, high = INTEGER_RANGES[dtype]
    with np.errstate(all="ignore"):
        # exact in float32 wherever the sum does not saturate: it is then below 2^24
        codes = np.rint(data / scale).astype(np.float32) + offset.astype(np.float32)
    codes = np.where(np.isnan(codes), np.float32(low), codes)
    return np.asarray(np.clip(codes, np.float32(low), np.float32(high))).astype(dtype)
