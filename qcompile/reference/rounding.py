"""The small steps that several operators share: wrapping to int32, requantizing, rounding half away from zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = Mapping[str, Array]


def zero_point(values: Values, name: str) -> Array:
    """The zero point in int64, so that differences are exact; 0 where there is none."""
    return np.asarray(values.get(name, 0)).astype(np.int64)


def along_axis(parameter: Array, axis: int, rank: int) -> Array:
    """A vector reshaped so that it runs along `axis` of a tensor of `rank` axes; a scalar stays one."""
    if parameter.ndim == 0:
        return parameter
    shape = [1] * rank
    shape[axis] = parameter.size
    return parameter.reshape(shape)


def wrap_int32(sums: Array) -> Array:
    """int64 sums as int32, modulo 2^32."""
    return (sums & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def requantize(sums: Array, multiplier: Array, zero_point: Array, code_range: tuple[int, int], dtype: str) -> Array:
    """Turns int32 sums into codes; `multiplier` and `zero_point` broadcast against the sums.

    code = RHE(clamp(f32(f32(sum) * multiplier), qmin - zero_point, qmax - zero_point)) + zero_point, all in float32.
    The zero point is added after the rounding: an odd one would send ties the other way.
    """
    lowest = (code_range[0] - zero_point).astype(np.float32)
    highest = (code_range[1] - zero_point).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        scaled = sums.astype(np.float32) * multiplier
    return np.asarray(np.rint(np.clip(scaled, lowest, highest)) + zero_point.astype(np.float32)).astype(dtype)


def round_half_away(numbers: Array) -> Array:
    """Rounds float32 numbers to the nearest integers, ties away from zero."""
    # adding 0.5 first would turn the largest float32 below 0.5 into 1
    whole = np.trunc(numbers)
    carry = np.where(np.abs(numbers - whole) >= 0.5, np.copysign(np.float32(1), numbers), np.float32(0))
    return np.asarray(whole + carry)
