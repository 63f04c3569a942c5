"""The NumPy oracle: what every kernel on every target must return, bit for bit.

One readable function per operator; nothing here is shared with the compiler except the descriptions in `spec`.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..errors import InvalidTensorError, UnsupportedError
from ..spec import (
    ConvolutionInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatrixMultiplyInteger,
    Operator,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
    QuantizeV2,
    Requantize,
)
from ..spec.values import canonical_values
from .convolution import convolution_integer, quantized_linear_convolution
from .elementwise import dequantize_linear, dynamic_quantize_linear, quantize_linear, requantize_sums
from .matrix_multiply import matrix_multiply_integer, quantized_linear_matrix_multiply
from .quantize_v2 import quantize_v2
from .random_values import random_values
from .rounding import Array

__all__ = ["REFERENCES", "evaluate", "random_values", "reference"]

#: operator class -> its reference function, (operator, canonical values) -> outputs by name.
REFERENCES: dict[type[Operator], Callable[[Any, Mapping[str, Array]], dict[str, Array]]] = {
    QuantizedLinearConvolution: quantized_linear_convolution,
    ConvolutionInteger: convolution_integer,
    QuantizedLinearMatrixMultiply: quantized_linear_matrix_multiply,
    MatrixMultiplyInteger: matrix_multiply_integer,
    Requantize: requantize_sums,
    QuantizeLinear: quantize_linear,
    DequantizeLinear: dequantize_linear,
    DynamicQuantizeLinear: dynamic_quantize_linear,
    QuantizeV2: quantize_v2,
}


def evaluate(operator: Operator, values: Mapping[str, Array]) -> dict[str, Array]:
    """Computes an operator from canonical values (see `spec.values`); zero points that are left out are 0.

    Returns:
        The outputs by name, in the shapes and dtypes of `operator.outputs`.
    """
    function = REFERENCES.get(type(operator))
    if function is None:
        raise UnsupportedError(
            "There is no reference for this operator.",
            given=type(operator).__name__,
            accepted=", ".join(known.__name__ for known in REFERENCES),
        )
    return function(operator, values)


def reference(operator: Operator, **tensors: Any) -> Any:
    """Computes an operator in NumPy, as every compiled kernel must: `qc.reference(conv, input=x, filter=w, ...)`.

    Args:
        operator: the description of the operator.
        tensors: all of its tensors by name, as a kernel accepts them: NumPy or DLPack arrays of the right dtype, or
            Python numbers; parameters also as scalars or in broadcast shapes. Zero points may be left out (0).

    Returns:
        The output array, or a named tuple of arrays where the operator has several outputs.

    Raises:
        InvalidTensorError: a tensor that is missing, unknown, or of the wrong shape or dtype.
        InvalidQuantizationError: a scale, or a combination of scales, that is not allowed.
    """
    values = canonical_values(operator, tensors)
    missing = [tensor for tensor in operator.tensors if not tensor.optional and tensor.name not in values]
    if missing:
        raise InvalidTensorError(
            f"{type(operator).__name__} lacks the tensor {missing[0].name}.",
            given=", ".join(values) or "no tensors",
            accepted="; ".join(map(str, operator.tensors)),
            remedy=f"pass {', '.join(f'{tensor.name}=' for tensor in missing)}",
        )
    operator.check_values(values)
    outputs = evaluate(operator, values)
    if len(outputs) == 1:
        return outputs[operator.outputs[0].name]
    names = [tensor.name for tensor in operator.outputs]
    return namedtuple(f"{type(operator).__name__}Outputs", names)(**outputs)


class _CallableModule(ModuleType):
    """`qcompile.reference` is the public function and this package: Python binds a package to its parent's name."""

    def __call__(self, operator: Operator, **tensors: Any) -> Any:
        return reference(operator, **tensors)


sys.modules[__name__].__class__ = _CallableModule
