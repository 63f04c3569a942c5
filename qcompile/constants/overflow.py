"""Whether an int32 accumulator can overflow, as far as the constants tell. It then wraps modulo 2^32.

For output channel o with centred weights w' = filter - filter_zero_point and centred inputs x' from
low = min(type) - input_zero_point to high = max(type) - input_zero_point, the sums lie between

    sum(w' > 0) * low + sum(w' < 0) * high + bias    and    sum(w' > 0) * high + sum(w' < 0) * low + bias,

and reach both. Where weights or zero points are unknown, K * max|x'| * max|w'| + max|bias| bounds them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import AccumulatorOverflowError, AccumulatorOverflowWarning
from ..spec import Convolution, MatrixMultiply, Operator
from ..spec.tensor import INTEGER_RANGES

Array = npt.NDArray[Any]
Values = Mapping[str, Array]

_LOWEST, _HIGHEST = INTEGER_RANGES["int32"]


def check(operator: Operator, constants: Values, name: str) -> None:
    """Checks the accumulators of a convolution or matrix product; other operators have none.

    Args:
        operator: the operator.
        constants: canonical values of the tensors that are known.
        name: the kernel, for messages.

    Raises:
        AccumulatorOverflowError: the constants prove that some input overflows.

    Warns:
        AccumulatorOverflowWarning: an overflow is possible.
    """
    if not isinstance(operator, (Convolution, MatrixMultiply)):
        return
    data, filter_name = ("input", "filter") if isinstance(operator, Convolution) else ("a", "b")
    low, high = _centred_range(operator, constants, data)
    bias = constants.get("bias", np.zeros(1, np.int32)).astype(np.int64)
    if _is_known(operator, constants, filter_name, f"{filter_name}_zero_point"):
        weights = _centred_weights(operator, constants, filter_name)
        positive, negative = np.maximum(weights, 0).sum(axis=-1), np.minimum(weights, 0).sum(axis=-1)
        smallest = int((positive * low + negative * high + bias).min())
        largest = int((positive * high + negative * low + bias).max())
        everything_known = _is_known(operator, constants, "bias", f"{data}_zero_point")
        if max(largest - _HIGHEST, _LOWEST - smallest) > 0 and everything_known and _sees_whole_window(operator):
            raise AccumulatorOverflowError(
                f"Kernel {name!r}: the int32 accumulator overflows for some inputs.",
                given=f"sums from {smallest} to {largest}",
                accepted=f"{_LOWEST} to {_HIGHEST}",
                remedy="check the bias and the weights, or split the operator along its input channels",
            )
    else:
        weight_low, weight_high = _centred_range(operator, constants, filter_name)
        reach = operator.accumulation_length * max(-low, high) * max(-weight_low, weight_high)
        largest = reach + int(np.abs(bias).max())
        smallest = -largest
    if largest > _HIGHEST or smallest < _LOWEST:
        warnings.warn(
            f"Kernel {name!r}: the int32 accumulator may overflow: {operator.accumulation_length} products can sum to "
            f"{max(largest, -smallest)}. It then wraps modulo 2^32.",
            AccumulatorOverflowWarning,
            stacklevel=2,
        )


def _is_known(operator: Operator, constants: Values, *names: str) -> bool:
    """Whether all of these tensors are constants, or do not exist."""
    existing = {tensor.name for tensor in operator.tensors}
    return all(name in constants for name in names if name in existing)


def _centred_range(operator: Operator, constants: Values, name: str) -> tuple[int, int]:
    """The smallest and largest value of a tensor of codes after its zero point is subtracted."""
    low, high = INTEGER_RANGES[operator.tensor(name).dtype]
    zero_point = f"{name}_zero_point"
    if zero_point in constants:
        known = constants[zero_point].astype(np.int64)
        return low - int(known.max()), high - int(known.min())
    if _is_known(operator, constants, zero_point):
        return low, high
    return low - high, high - low


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
