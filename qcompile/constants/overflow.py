"""Whether an int32 accumulator can overflow, as far as the constants tell. It then wraps modulo 2^32.

For output channel o with centred weights w' = filter - filter_zero_point and centred inputs x' from
low = min(type) - input_zero_point to high = max(type) - input_zero_point, the sums lie between

    sum(w' > 0) * low + sum(w' < 0) * high + bias    and    sum(w' > 0) * high + sum(w' < 0) * low + bias,

and reach both. Where weights or zero points are unknown, K * max|x'| * max|w'| + max|bias| bounds them.

No constants make every input overflow: a zero point is a code, and an input of nothing but zero points sums to the
bias, which is int32. Real data may stay far from both ends, so that an overflow of some inputs is a warning unless the
caller wants an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import AccumulatorOverflowError, AccumulatorOverflowWarning, UnknownNameError
from ..spec import Convolution, MatrixMultiply, Operator
from ..spec.tensor import INTEGER_RANGES

Array = npt.NDArray[Any]
Values = Mapping[str, Array]

#: what can follow where some inputs can overflow
ANSWERS = ("warn", "error")
_LOWEST, _HIGHEST = INTEGER_RANGES["int32"]
_CHECK = "check the bias and the weights"
_SPLIT = 'split the operator along its input channels, or allow sums that wrap modulo 2^32 with overflow="warn"'


@dataclass(frozen=True)
class _Finding:
    """That sums leave int32: for certain or possibly, which ones, and what to do about it."""

    verdict: str
    sums: str
    remedy: str


def check(operator: Operator, constants: Values, name: str, overflow: str = "warn") -> None:
    """Checks the accumulators of a convolution or matrix product; other operators have none.

    Args:
        operator: the operator.
        constants: canonical values of the tensors that are known.
        name: the kernel, for messages.
        overflow: "warn" warns and "error" raises where an overflow of some inputs is certain or possible.

    Raises:
        AccumulatorOverflowError: some inputs can overflow, and `overflow` is "error".
        UnknownNameError: `overflow` has another value.

    Warns:
        AccumulatorOverflowWarning: some inputs can overflow, and `overflow` is "warn".
    """
    if not isinstance(overflow, str) or overflow not in ANSWERS:
        accepted = ", ".join(map(repr, ANSWERS))
        raise UnknownNameError("Unknown value of overflow.", given=repr(overflow)[:80], accepted=accepted)
    finding = _finding(operator, constants) if isinstance(operator, (Convolution, MatrixMultiply)) else None
    if finding is None:
        return
    problem = f"Kernel {name!r}: the int32 accumulator {finding.verdict}"
    if overflow == "error":
        raise AccumulatorOverflowError(
            f"{problem}.", given=finding.sums, accepted=f"{_LOWEST} to {_HIGHEST}", remedy=finding.remedy
        )
    warnings.warn(
        f"{problem}: {finding.sums}. Sums outside int32 wrap modulo 2^32.", AccumulatorOverflowWarning, stacklevel=2
    )


def _finding(operator: Convolution | MatrixMultiply, constants: Values) -> _Finding | None:
    """What is known about an overflow; None where none is possible."""
    data, filter_name = ("input", "filter") if isinstance(operator, Convolution) else ("a", "b")
    names = (filter_name, f"{filter_name}_zero_point", f"{data}_zero_point", "bias")
    unknown = [name for name in names if not _is_known(operator, constants, name)]
    ranges = _centred_ranges(operator, constants, data)
    bias = constants.get("bias", np.zeros(1, np.int32)).astype(np.int64)
    if set(names[:2]) & set(unknown):
        weight_ranges = _centred_ranges(operator, constants, filter_name)
        reach = operator.accumulation_length * _largest_magnitude(ranges) * _largest_magnitude(weight_ranges)
        largest = reach + int(np.abs(bias).max())
        smallest = -largest
    else:
        weights = _centred_weights(operator, constants, filter_name)
        positive, negative = np.maximum(weights, 0).sum(axis=-1), np.minimum(weights, 0).sum(axis=-1)
        smallest = min(int((positive * low + negative * high + bias).min()) for low, high in ranges)
        largest = max(int((positive * high + negative * low + bias).max()) for low, high in ranges)
    if smallest >= _LOWEST and largest <= _HIGHEST:
        return None
    if not unknown and _sees_whole_window(operator):
        return _Finding("overflows for some inputs", f"sums from {smallest} to {largest}", f"{_CHECK}, {_SPLIT}")
    sums = f"{operator.accumulation_length} products can sum to {max(largest, -smallest)}"
    return _Finding("may overflow", sums, f"give {', '.join(unknown)} as constants, {_SPLIT}" if unknown else _SPLIT)


def _is_known(operator: Operator, constants: Values, name: str) -> bool:
    """Whether this tensor is a constant, or does not exist."""
    return name in constants or all(tensor.name != name for tensor in operator.tensors)


def _centred_ranges(operator: Operator, constants: Values, name: str) -> list[tuple[int, int]]:
    """The smallest and largest value of a tensor of codes after its zero point is subtracted.

    Of several zero points the ends: sums are linear in the zero point, so that no other one leads further.
    """
    low, high = INTEGER_RANGES[operator.tensor(name).dtype]
    zero_point = f"{name}_zero_point"
    if zero_point in constants:
        known = constants[zero_point].astype(np.int64)
        return [(low - end, high - end) for end in (int(known.min()), int(known.max()))]
    if _is_known(operator, constants, zero_point):
        return [(low, high)]
    return [(low - high, high - low)]


def _largest_magnitude(ranges: list[tuple[int, int]]) -> int:
    return max(max(-low, high) for low, high in ranges)


def _centred_weights(operator: Convolution | MatrixMultiply, constants: Values, name: str) -> Array:
    """int64 [channels, K], or [..., columns, K] of a matrix product."""
    weights = constants[name].astype(np.int64)
    zero_point = constants.get(f"{name}_zero_point", np.zeros((), np.int64)).astype(np.int64)
    if isinstance(operator, MatrixMultiply):
        return np.moveaxis(weights - zero_point, -2, -1)
    flat = weights.reshape(weights.shape[0], -1)
    return flat - (zero_point[:, None] if zero_point.ndim else zero_point)


def _sees_whole_window(operator: Convolution | MatrixMultiply) -> bool:
    """Whether some output has all taps of the filter inside the input."""
    if isinstance(operator, MatrixMultiply):
        return True
    geometry = zip(
        operator.input_spatial,
        operator.filter_span,
        operator.start_padding or (),
        operator.strides or (),
        operator.output_spatial,
        strict=True,
    )
    return all(
        any(0 <= position * stride - start <= size - span for position in range(outputs))
        for size, span, start, stride, outputs in geometry
    )
