"""NumPy reference of the matrix products."""

from __future__ import annotations

import numpy as np

from ..spec import MatrixMultiplyInteger, QuantizedLinearMatrixMultiply
from .rounding import Array, Values, requantize, wrap_int32, zero_point


def quantized_linear_matrix_multiply(operator: QuantizedLinearMatrixMultiply, values: Values) -> dict[str, Array]:
    """output: int8 or uint8 [..., M, N].

    acc = sum((a - a_zero_point) * (b - b_zero_point)) + bias, int32, modulo 2^32;
    m = f32(f32(a_scale * b_scale) / output_scale), a matrix where vectors per row meet vectors per column;
    output = RHE(clamp(f32(acc) * m, qmin - output_zero_point, qmax - output_zero_point)) + output_zero_point.
    """
    bias = values["bias"] if operator.bias else np.zeros((), np.int32)
    sums = wrap_int32(_sums(values) + bias)
    multiplier = _per_row(values["a_scale"]) * values["b_scale"] / _per_row(values["output_scale"])  # float32
    codes = requantize(
        sums,
        np.asarray(multiplier),
        _per_row(zero_point(values, "output_zero_point")),
        operator.output_range,
        operator.output_dtype,
    )
    return {"output": codes}


def matrix_multiply_integer(operator: MatrixMultiplyInteger, values: Values) -> dict[str, Array]:
    """output: int32 [..., M, N] = sum((a - a_zero_point) * (b - b_zero_point)), modulo 2^32."""
    return {"output": wrap_int32(_sums(values))}


def _sums(values: Values) -> Array:
    """The sums before wrapping, int64 [..., M, N]."""
    # float64 goes through BLAS and is exact: |product| <= 255 * 255, so sums stay below 2^53 up to 2^37 products
    a = values["a"].astype(np.float64) - _per_row(zero_point(values, "a_zero_point"))
    b = values["b"].astype(np.float64) - zero_point(values, "b_zero_point")
    return np.asarray(a @ b).astype(np.int64)


def _per_row(parameter: Array) -> Array:
    """A vector of M as a column [M, 1]; a vector of N lies along the last axis without help."""
    return parameter[:, None] if parameter.ndim == 1 else parameter
