"""Descriptions of the matrix products: QuantizedLinearMatrixMultiply and MatrixMultiplyInteger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .operator import Operator, check_combined_scale
from .tensor import CODE_DTYPES, INTEGER_RANGES, Tensor, TensorRole

PER_ROW = ("per_tensor", "per_row")
PER_COLUMN = ("per_tensor", "per_column")


class MatrixMultiply(Operator):
    """Shapes of a matrix product with NumPy's broadcasting of the batch axes, shared by the two operators."""

    a: Tensor
    b: Tensor
    a_zero_point: str | None
    b_zero_point: str | None

    def check_geometry(self) -> None:
        """Checks that the shapes of a and b fit together."""
        self.require_tensor("a", CODE_DTYPES, (2, 3, 4))
        self.require_tensor("b", CODE_DTYPES, (2, 3, 4))
        self.require_elements("a", "b")
        self.require(
            self.a.shape[-1] == self.b.shape[-2],
            "the inner sizes of a and b differ.",
            given=f"a {self.a.shape}, b {self.b.shape}",
            accepted="a [..., M, K] and b [..., K, N]",
        )
        try:
            np.broadcast_shapes(self.a.shape[:-2], self.b.shape[:-2])
        except ValueError:
            self.require(
                False,
                "the batch axes of a and b do not broadcast.",
                given=f"{self.a.shape[:-2]} and {self.b.shape[:-2]}",
                accepted="equal sizes, or 1",
            )
        self.require_choice("a_zero_point", (*PER_ROW, None))
        self.require_choice("b_zero_point", (*PER_COLUMN, None))
        Tensor(self.output_shape, "int32")  # raises where the output would have too many elements

    @property
    def rows(self) -> int:
        """M."""
        return self.a.shape[-2]

    @property
    def columns(self) -> int:
        """N."""
        return self.b.shape[-1]

    @property
    def depth(self) -> int:
        """K."""
        return self.a.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast batch axes."""
        return tuple(np.broadcast_shapes(self.a.shape[:-2], self.b.shape[:-2]))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """[..., M, N]."""
        return (*self.batch_shape, self.rows, self.columns)

    @property
    def accumulation_length(self) -> int:
        """K."""
        return self.depth

    @property
    def operations(self) -> int:
        """Multiply-accumulates."""
        return math.prod(self.output_shape) * self.depth

    def parameter(self, name: str, dtype: str, granularity: str | None, role: str) -> list[TensorRole]:
        """The parameter as a list of one tensor, or of none where the granularity is None."""
        if granularity is None:
            return []
        shapes = {"per_tensor": (), "per_row": (self.rows,), "per_column": (self.columns,)}
        broadcast = (4, 2 if granularity == "per_row" else 3)
        return [TensorRole(name, dtype, shapes[granularity], role, broadcast, optional=role == "zero_point")]


@dataclass(frozen=True)
class QuantizedLinearMatrixMultiply(MatrixMultiply):
    """DirectML's QUANTIZED_LINEAR_MATRIX_MULTIPLY, ONNX's QLinearMatMul; with `bias` also QGemm.

    acc = sum((a - a_zero_point) * (b - b_zero_point)) + bias, exact in int32;
    output = RHE(clamp(f32(acc) * m, ...)) + output_zero_point with m = f32(f32(a_scale * b_scale) / output_scale),
    a matrix where parameters per row meet parameters per column.

    Args:
        a: int8 or uint8 [..., M, K], 2 to 4 axes; the batch axes broadcast as in NumPy.
        b: int8 or uint8 [..., K, N].
        output_dtype: "int8" or "uint8"; default: a's.
        bias: whether there is a bias, int32 [N].
        a_scale, output_scale: "per_tensor" or "per_row" (one for each of the M rows).
        a_zero_point, output_zero_point: likewise, or None (there is none; it is 0).
        b_scale: "per_tensor" or "per_column" (one for each of the N columns).
        b_zero_point: likewise, or None.
        activation: (minimum, maximum) of the output codes, or None.

    Raises:
        InvalidOperatorError: fields that do not fit together.
    """

    family: ClassVar[str] = "qmatmul"

    a: Tensor
    b: Tensor
    output_dtype: str = ""
    bias: bool = False
    a_scale: str = "per_tensor"
    a_zero_point: str | None = "per_tensor"
    b_scale: str = "per_tensor"
    b_zero_point: str | None = "per_tensor"
    output_scale: str = "per_tensor"
    output_zero_point: str | None = "per_tensor"
    activation: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.check_geometry()
        self.replace("output_dtype", self.output_dtype or self.a.dtype)
        self.require_choice("output_dtype", CODE_DTYPES)
        self.require_choice("bias", (True, False))
        self.require_choice("a_scale", PER_ROW)
        self.require_choice("b_scale", PER_COLUMN)
        self.require_choice("output_scale", PER_ROW)
        self.require_choice("output_zero_point", (*PER_ROW, None))
        self.require_activation(self.output_dtype)

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias, output_scale, output_zero_point."""
        bias = TensorRole("bias", "int32", (self.columns,), "bias", (4, 3))
        return (
            TensorRole("a", self.a.dtype, self.a.shape, "data"),
            *self.parameter("a_scale", "float32", self.a_scale, "scale"),
            *self.parameter("a_zero_point", self.a.dtype, self.a_zero_point, "zero_point"),
            TensorRole("b", self.b.dtype, self.b.shape, "filter"),
            *self.parameter("b_scale", "float32", self.b_scale, "scale"),
            *self.parameter("b_zero_point", self.b.dtype, self.b_zero_point, "zero_point"),
            *((bias,) if self.bias else ()),
            *self.parameter("output_scale", "float32", self.output_scale, "scale"),
            *self.parameter("output_zero_point", self.output_dtype, self.output_zero_point, "zero_point"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """Output."""
        return (TensorRole("output", self.output_dtype, self.output_shape, "output"),)

    @property
    def output_range(self) -> tuple[int, int]:
        """Smallest and largest output code."""
        return self.activation or INTEGER_RANGES[self.output_dtype]

    def check_values(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Checks the multiplier where all three scales are known."""
        columns = {  # rows stand upright, columns lie, and NumPy's broadcasting makes the matrix
            name: value[:, None] if self.tensor(name).shape == (self.rows,) and name != "b_scale" else value
            for name, value in values.items()
            if name in ("a_scale", "b_scale", "output_scale")
        }
        check_combined_scale(columns, ("a_scale", "b_scale"), "output_scale")


@dataclass(frozen=True)
class MatrixMultiplyInteger(MatrixMultiply):
    """ONNX's MatMulInteger: the int32 sums of a matrix product, without scales.

    output = sum((a - a_zero_point) * (b - b_zero_point)), exact in int32. The fields are those of
    QuantizedLinearMatrixMultiply without bias, scales and output parameters.
    """

    family: ClassVar[str] = "imatmul"

    a: Tensor
    b: Tensor
    a_zero_point: str | None = "per_tensor"
    b_zero_point: str | None = "per_tensor"

    def __post_init__(self) -> None:
        self.check_geometry()

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """a, a_zero_point, b, b_zero_point."""
        return (
            TensorRole("a", self.a.dtype, self.a.shape, "data"),
            *self.parameter("a_zero_point", self.a.dtype, self.a_zero_point, "zero_point"),
            TensorRole("b", self.b.dtype, self.b.shape, "filter"),
            *self.parameter("b_zero_point", self.b.dtype, self.b_zero_point, "zero_point"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """output: int32."""
        return (TensorRole("output", "int32", self.output_shape, "output"),)
