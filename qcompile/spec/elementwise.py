"""Descriptions of the operators that change the type of every element: Requantize, (De)QuantizeLinear and kin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .operator import Operator, check_combined_scale
from .tensor import CODE_DTYPES, INTEGER_RANGES, Tensor, TensorRole
from .values import check_scale

PER_AXIS = ("per_tensor", "per_axis")
QUANTIZED_DTYPES = ("int8", "uint8", "int16", "uint16")
FLOAT_DTYPES = ("float16", "float32")


class Elementwise(Operator):
    """An operator with one data input, whose parameters are per tensor or per slice of one axis."""

    input: Tensor
    axis: int

    def check_axis(self, *granularities: str | None) -> None:
        """Makes `axis` non-negative; where nothing is per axis it becomes 0, so that equal operators compare equal."""
        if "per_axis" not in granularities:
            self.replace("axis", 0)
            return
        rank = len(self.input.shape)
        self.require_integer("axis", -rank, rank - 1, "axis is outside the input.")
        self.replace("axis", self.axis % rank)

    @property
    def operations(self) -> int:
        """Elements."""
        return self.input.elements

    def parameter(self, name: str, dtype: str, granularity: str | None, role: str) -> list[TensorRole]:
        """The parameter as a list of one tensor, or of none where the granularity is None."""
        if granularity is None:
            return []
        rank = len(self.input.shape)
        per_axis = granularity == "per_axis"
        shape = (self.input.shape[self.axis],) if per_axis else ()
        broadcast = (rank, self.axis) if per_axis else None
        return [TensorRole(name, dtype, shape, role, broadcast, optional=role == "zero_point")]

    def output(self, dtype: str) -> TensorRole:
        """The output of the input's shape."""
        return TensorRole("output", dtype, self.input.shape, "output")


@dataclass(frozen=True)
class Requantize(Elementwise):
    """Turns int32 sums into codes: output = RHE(clamp(f32(input) * m, ...)) + output_zero_point.

    m = f32(input_scale / output_scale).

    Args:
        input: int32, any shape.
        output_dtype: "int8" or "uint8" (default "int8").
        input_scale, output_scale: "per_tensor" or "per_axis".
        output_zero_point: likewise, or None (there is none; it is 0).
        axis: the axis of the parameters per axis (default 1).
        activation: (minimum, maximum) of the output codes, or None.

    Raises:
        InvalidOperatorError: fields that do not fit together.
    """

    family: ClassVar[str] = "requantize"

    input: Tensor
    output_dtype: str = "int8"
    input_scale: str = "per_tensor"
    output_scale: str = "per_tensor"
    output_zero_point: str | None = "per_tensor"
    axis: int = 1
    activation: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.require_tensor("input", ("int32",))
        self.require_choice("output_dtype", CODE_DTYPES)
        self.require_choice("input_scale", PER_AXIS)
        self.require_choice("output_scale", PER_AXIS)
        self.require_choice("output_zero_point", (*PER_AXIS, None))
        self.check_axis(self.input_scale, self.output_scale, self.output_zero_point)
        self.require_activation(self.output_dtype)

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """input, input_scale, output_scale, output_zero_point."""
        return (
            TensorRole("input", "int32", self.input.shape, "data"),
            *self.parameter("input_scale", "float32", self.input_scale, "scale"),
            *self.parameter("output_scale", "float32", self.output_scale, "scale"),
            *self.parameter("output_zero_point", self.output_dtype, self.output_zero_point, "zero_point"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """Output."""
        return (self.output(self.output_dtype),)

    @property
    def output_range(self) -> tuple[int, int]:
        """Smallest and largest output code."""
        return self.activation or INTEGER_RANGES[self.output_dtype]

    def check_values(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Checks the multiplier where both scales are known."""
        check_combined_scale(values, ("input_scale",), "output_scale")


@dataclass(frozen=True)
class QuantizeLinear(Elementwise):
    """ONNX's QuantizeLinear: output = saturate(RHE(input / scale) + zero_point); NaN gives the minimum.

    The quotient is rounded to `precision`. The scale has the input's dtype.

    Args:
        input: float32 or float16, any shape.
        output_dtype: "int8", "uint8" (default), "int16" or "uint16".
        scale: "per_tensor" or "per_axis".
        zero_point: likewise, or None (there is none; it is 0).
        axis: the axis of the parameters per axis (default 1).
        precision: "float32" or "float16", in which the division is done; default: the input's dtype.

    Raises:
        InvalidOperatorError: fields that do not fit together.
    """

    family: ClassVar[str] = "quantize"

    input: Tensor
    output_dtype: str = "uint8"
    scale: str = "per_tensor"
    zero_point: str | None = "per_tensor"
    axis: int = 1
    precision: str = ""

    def __post_init__(self) -> None:
        self.require_tensor("input", FLOAT_DTYPES)
        self.replace("precision", self.precision or self.input.dtype)
        self.require_choice("precision", FLOAT_DTYPES)
        self.require_choice("output_dtype", QUANTIZED_DTYPES)
        self.require_choice("scale", PER_AXIS)
        self.require_choice("zero_point", (*PER_AXIS, None))
        self.check_axis(self.scale, self.zero_point)

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """input, scale, zero_point."""
        return (
            TensorRole("input", self.input.dtype, self.input.shape, "data"),
            *self.parameter("scale", self.input.dtype, self.scale, "scale"),
            *self.parameter("zero_point", self.output_dtype, self.zero_point, "zero_point"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """Output."""
        return (self.output(self.output_dtype),)

    def check_values(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Checks that the scale is a usable number in the precision of the division."""
        if "scale" in values and self.precision != self.input.dtype:
            with np.errstate(over="ignore"):
                check_scale(f"scale in {self.precision}", values["scale"].astype(self.precision))


@dataclass(frozen=True)
class DequantizeLinear(Elementwise):
    """ONNX's DequantizeLinear: output = f32(f32(input - zero_point) * scale), rounded to `output_dtype`.

    The scale has the output's dtype.

    Args:
        input: int8, uint8, int16, uint16 or int32, any shape.
        scale: "per_tensor" or "per_axis".
        zero_point: likewise, or None (there is none; it is 0). int32 inputs have none or 0.
        axis: the axis of the parameters per axis (default 1).
        output_dtype: "float32" (default) or "float16".

    Raises:
        InvalidOperatorError: fields that do not fit together.
    """

    family: ClassVar[str] = "dequantize"

    input: Tensor
    scale: str = "per_tensor"
    zero_point: str | None = "per_tensor"
    axis: int = 1
    output_dtype: str = "float32"

    def __post_init__(self) -> None:
        self.require_tensor("input", (*QUANTIZED_DTYPES, "int32"))
        self.require_choice("output_dtype", FLOAT_DTYPES)
        self.require_choice("scale", PER_AXIS)
        self.require_choice("zero_point", (*PER_AXIS, None))
        self.require(
            self.input.dtype != "int32" or self.zero_point is None,
            "an int32 input has no zero point.",
            given=f"zero_point={self.zero_point!r}",
            accepted="zero_point=None",
        )
        self.check_axis(self.scale, self.zero_point)

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """input, scale, zero_point."""
        return (
            TensorRole("input", self.input.dtype, self.input.shape, "data"),
            *self.parameter("scale", self.output_dtype, self.scale, "scale"),
            *self.parameter("zero_point", self.input.dtype, self.zero_point, "zero_point"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """output: float32."""
        return (self.output(self.output_dtype),)


@dataclass(frozen=True)
class DynamicQuantizeLinear(Elementwise):
    """ONNX's DynamicQuantizeLinear: derives scale and zero point from the input, which it quantizes to uint8.

    lo = min(input, 0), hi = max(input, 0); scale = f32((hi - lo) / 255);
    zero_point = RHE(clamp(f32(-lo / scale), 0, 255)). An input of zeros gives scale 1 and zero point 0.

    Args:
        input: float32, any shape.

    Raises:
        InvalidOperatorError: an input of another dtype.
    """

    family: ClassVar[str] = "dynamicquantize"

    input: Tensor

    def __post_init__(self) -> None:
        self.require_tensor("input", ("float32",))

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """Input."""
        return (TensorRole("input", "float32", self.input.shape, "data"),)

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """Output (uint8), scale (float32), zero_point (uint8)."""
        return (
            self.output("uint8"),
            TensorRole("scale", "float32", (), "output"),
            TensorRole("zero_point", "uint8", (), "output"),
        )
