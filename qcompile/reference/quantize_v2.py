"""NumPy reference of TensorFlow's QuantizeV2, as TensorFlow 2.21 computes it on a CPU."""

from __future__ import annotations

import numpy as np

from ..spec import QuantizeV2
from ..spec.tensor import INTEGER_RANGES
from .rounding import Array, Values, along_axis, round_half_away

_SMALLEST_NORMAL = np.finfo(np.float32).tiny
_LARGEST = np.finfo(np.float32).max
_INT32_MINIMUM = -(2**31)


def quantize_v2(operator: QuantizeV2, values: Values) -> dict[str, Array]:
    """output: the output dtype, the input's shape; output_min, output_max: float32, [] or one per slice.

    Range (per slice): lo = min(0, min_range), hi = max(0, max_range, lo + eps) with
    eps = max(1, |min_range|, |max_range|) * ensure_minimum_range. Then, by mode:

    - MIN_COMBINED: s = f32((Tmax - Tmin) / f32(hi - lo)); y = (clamp(input, lo, hi) - lo) * s;
      unsigned: trunc(y + 0.5); signed: round(y - 2^(bits - 1)).
    - MIN_FIRST: the same s; clamp(round(input * s) - (round(lo * s) - Tmin), Tmin, Tmax).
    - SCALED: s = min(qmin / lo, qmax / hi); round(clamp(input, qmin / s, qmax / s) * s); the output range is
      [qmin / s, qmax / s].

    All in float32; denormal inputs count as 0. Numbers outside int32 become -2^31, of which the type's low bits are
    taken; NaN gives 0 (int32 with MIN_FIRST: -2^31).
    """
    with np.errstate(all="ignore"):
        low, high = _range(operator, values)
        data = _flush(values["input"])
        numbers, low, high = _MODES[operator.mode](operator, data, low, high)
        shape = operator.tensor("output_min").shape
        return {
            "output": _convert(operator, numbers),
            "output_min": low.reshape(shape),
            "output_max": high.reshape(shape),
        }


def _range(operator: QuantizeV2, values: Values) -> tuple[Array, Array]:
    """(lo, hi), of the shape of min_range and max_range."""
    minimum, maximum = _flush(values["min_range"]), _flush(values["max_range"])
    width = np.float32(operator.ensure_minimum_range)
    epsilon = _maximum(np.float32(1), _maximum(np.abs(minimum), np.abs(maximum))) * width
    low = _minimum(np.float32(0), minimum)
    high = _maximum(np.float32(0), _maximum(maximum, _flush(low + epsilon)))
    return low, high


def _min_combined(operator: QuantizeV2, data: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    scale = _along(operator, _scale(operator, low, high))
    lowest, highest = _along(operator, low), _along(operator, high)
    numbers = (_clamp(data, lowest, highest) - lowest) * scale
    if operator.output_dtype.startswith("u"):
        return np.trunc(numbers + np.float32(0.5)), low, high
    return round_half_away(numbers + np.float32(INTEGER_RANGES[operator.output_dtype][0])), low, high


def _min_first(operator: QuantizeV2, data: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    scale = _along(operator, np.where(high == low, np.float32(0), _scale(operator, low, high)))
    bottom, top = (np.float32(bound) for bound in INTEGER_RANGES[operator.output_dtype])
    if operator.output_dtype == "int32":
        top = np.nextafter(top, np.float32(0))  # 2^31 - 128, the largest float32 that fits
    offset = round_half_away(_along(operator, low) * scale) - bottom
    return _clamp(round_half_away(data * scale) - offset, bottom, top), low, high


def _scaled(operator: QuantizeV2, data: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    minimum, maximum = INTEGER_RANGES[operator.output_dtype]
    bottom, top = np.float32(minimum + operator.narrow_range), np.float32(maximum)
    scale = _minimum(
        np.where(bottom * low > 0, bottom / low, _LARGEST),
        np.where(top * high > 0, top / high, _LARGEST),
    )
    low, high = _flush(bottom / scale), _flush(top / scale)
    numbers = _clamp(data, _along(operator, low), _along(operator, high)) * _along(operator, scale)
    rounded = np.rint(numbers) if operator.round_mode == "HALF_TO_EVEN" else round_half_away(numbers)
    return rounded, low, high


_MODES = {"MIN_COMBINED": _min_combined, "MIN_FIRST": _min_first, "SCALED": _scaled}


def _scale(operator: QuantizeV2, low: Array, high: Array) -> Array:
    """f32(f64(Tmax - Tmin) / f64(f32(hi - lo)))."""
    minimum, maximum = INTEGER_RANGES[operator.output_dtype]
    return np.asarray(np.float64(maximum - minimum) / (high - low).astype(np.float64)).astype(np.float32)


def _along(operator: QuantizeV2, parameter: Array) -> Array:
    return along_axis(np.asarray(parameter), operator.axis, len(operator.input.shape))


def _flush(numbers: Array) -> Array:
    """Denormal numbers become 0."""
    return np.where(np.abs(numbers) < _SMALLEST_NORMAL, np.float32(0), numbers)


def _minimum(first: Array | np.float32, second: Array) -> Array:
    """C++'s std::min: a NaN as the second argument is ignored, as the first one it stays."""
    return np.where(second < first, second, first)


def _maximum(first: Array | np.float32, second: Array) -> Array:
    """C++'s std::max: a NaN as the second argument is ignored, as the first one it stays."""
    return np.where(first < second, second, first)


def _clamp(numbers: Array, low: Array | np.float32, high: Array | np.float32) -> Array:
    """NaN stays NaN."""
    return np.maximum(np.minimum(numbers, high), low)


def _convert(operator: QuantizeV2, numbers: Array) -> Array:
    fits = (numbers >= _INT32_MINIMUM) & (numbers < 2**31)
    integers = np.where(fits, numbers, np.float32(_INT32_MINIMUM)).astype(np.int64)
    if operator.mode != "MIN_FIRST":
        integers = np.where(np.isnan(numbers), 0, integers)
    return integers.astype(operator.output_dtype)
