"""Descriptions of the convolutions: QuantizedLinearConvolution and ConvolutionInteger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy.typing as npt

from .operator import Operator, check_combined_scale
from .tensor import CODE_DTYPES, INTEGER_RANGES, Tensor, TensorRole, integer_tuple


class Convolution(Operator):
    """Geometry of a 1-D or 2-D convolution, shared by the two operators."""

    has_layout: ClassVar[bool] = True

    input: Tensor
    filter: Tensor
    strides: tuple[int, ...] | None
    dilations: tuple[int, ...] | None
    start_padding: tuple[int, ...] | None
    end_padding: tuple[int, ...] | None
    group_count: int
    input_zero_point: str | None
    filter_zero_point: str | None

    def check_geometry(self) -> None:
        """Fills in the defaults and checks that shapes, padding and groups fit together."""
        self.require_tensor("input", CODE_DTYPES, (3, 4))
        self.require_tensor("filter", CODE_DTYPES, (3, 4))
        self.require_elements("input", "filter")
        self.require(
            len(self.filter.shape) == len(self.input.shape),
            "input and filter must have the same number of axes.",
            given=f"{self.input} and {self.filter}",
        )
        self.require(
            self.filter.layout in (self.input.layout, "NCHW"),
            "the filter's layout must follow the input's.",
            given=f"input {self.input.layout}, filter {self.filter.layout}",
            accepted="OIHW with NCHW, OHWI with NHWC",
        )
        self.replace("filter", replace(self.filter, layout=self.input.layout))
        rank = self.spatial_rank
        for field, default, least in (
            ("strides", 1, 1),
            ("dilations", 1, 1),
            ("start_padding", 0, 0),
            ("end_padding", 0, 0),
        ):
            value = getattr(self, field)
            value = (default,) * rank if value is None else integer_tuple(value, field)
            self.replace(field, value)
            self.require(
                len(value) == rank and all(least <= entry < 2**24 for entry in value),
                f"{field} has the wrong length or a bad number.",
                given=value,
                accepted=f"{rank} integers of at least {least}",
            )
        self.require_integer("group_count", 1, None, "group_count must be an integer >= 1.")
        groups = self.group_count
        self.require(
            self.channels % groups == 0 and self.output_channels % groups == 0,
            "the channels are not divisible by group_count.",
            given=f"{self.channels} input and {self.output_channels} output channels, group_count {groups}",
        )
        self.require(
            self.filter_channels == self.channels // groups,
            "the filter's input channels do not fit.",
            given=f"{self.filter_channels} in {self.filter}",
            accepted=f"{self.channels // groups} (input channels {self.channels} / group_count {groups})",
        )
        self.require_choice("input_zero_point", ("per_tensor", None))
        self.require_choice("filter_zero_point", ("per_tensor", "per_channel", None))
        for axis, size in enumerate(self.output_spatial):
            self.require(
                size >= 1,
                "the filter is larger than the padded input.",
                given=f"spatial axis {axis}: {self.padded_spatial[axis]} elements, filter of {self.filter_span[axis]}",
            )
        # raises where the output or the padded input would have too many elements
        Tensor(self.output_shape, "int32")
        Tensor((self.batch, self.channels, *self.padded_spatial), "int32")

    @property
    def channels_last(self) -> bool:
        """Whether the layout is NHWC with filters OHWI."""
        return self.input.layout == "NHWC"

    @property
    def spatial_rank(self) -> int:
        """1 or 2."""
        return len(self.input.shape) - 2

    def _split(self, shape: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        if self.channels_last:
            return shape[0], shape[-1], shape[1:-1]
        return shape[0], shape[1], shape[2:]

    @property
    def batch(self) -> int:
        """N."""
        return self.input.shape[0]

    @property
    def channels(self) -> int:
        """C, over all groups."""
        return self._split(self.input.shape)[1]

    @property
    def input_spatial(self) -> tuple[int, ...]:
        """(H, W) or (W,) of the input."""
        return self._split(self.input.shape)[2]

    @property
    def output_channels(self) -> int:
        """O, over all groups."""
        return self.filter.shape[0]

    @property
    def filter_channels(self) -> int:
        """Input channels of one group."""
        return self._split(self.filter.shape)[1]

    @property
    def filter_spatial(self) -> tuple[int, ...]:
        """(KH, KW) or (KW,)."""
        return self._split(self.filter.shape)[2]

    @property
    def filter_span(self) -> tuple[int, ...]:
        """Extent of the filter with its dilation."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.filter_spatial, self.dilations or (), strict=True))

    @property
    def padded_spatial(self) -> tuple[int, ...]:
        """Extent of the input with its padding."""
        padding = zip(self.input_spatial, self.start_padding or (), self.end_padding or (), strict=True)
        return tuple(size + start + end for size, start, end in padding)

    @property
    def output_spatial(self) -> tuple[int, ...]:
        """(OH, OW) or (OW,)."""
        extents = zip(self.padded_spatial, self.filter_span, self.strides or (), strict=True)
        return tuple((size - span) // stride + 1 for size, span, stride in extents)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output, in the input's layout."""
        if self.channels_last:
            return (self.batch, *self.output_spatial, self.output_channels)
        return (self.batch, self.output_channels, *self.output_spatial)

    @property
    def accumulation_length(self) -> int:
        """Products per output: filter positions x input channels of a group."""
        return self.filter_channels * math.prod(self.filter_spatial)

    @property
    def operations(self) -> int:
        """Multiply-accumulates, padded taps included."""
        return math.prod(self.output_shape) * self.accumulation_length

    def parameter(self, name: str, dtype: str, granularity: str | None, role: str) -> list[TensorRole]:
        """The parameter as a list of one tensor, or of none where the granularity is None."""
        if granularity is None:
            return []
        rank = len(self.input.shape)
        broadcast = (rank, rank - 1 if self.channels_last else 1)
        shape = (self.output_channels,) if granularity == "per_channel" else ()
        return [TensorRole(name, dtype, shape, role, broadcast, optional=role == "zero_point")]


@dataclass(frozen=True)
class QuantizedLinearConvolution(Convolution):
    """DirectML's QUANTIZED_LINEAR_CONVOLUTION, ONNX's QLinearConv.

    acc = sum((input - input_zero_point) * (filter - filter_zero_point)) + bias, exact in int32;
    output = RHE(clamp(f32(acc) * m, ...)) + output_zero_point with
    m = f32(f32(input_scale * filter_scale) / output_scale). Padding adds nothing to the sum.

    Args:
        input: int8 or uint8 [N, C, H, W] or [N, C, W] ("NCHW"), [N, H, W, C] or [N, W, C] ("NHWC").
        filter: int8 or uint8 [O, C / group_count, KH, KW], or [O, KH, KW, C / group_count] with "NHWC".
        output_dtype: "int8" or "uint8"; default: the input's.
        bias: whether there is a bias, int32 [O], of scale input_scale * filter_scale and zero point 0.
        strides, dilations: one integer per spatial axis; default 1.
        start_padding, end_padding: elements added before and after each spatial axis; default 0.
        group_count: number of groups; equal to C for a depthwise convolution.
        input_zero_point, output_zero_point: "per_tensor" or None (there is none; it is 0).
        filter_scale: "per_tensor" or "per_channel" (one per output channel).
        filter_zero_point: "per_tensor", "per_channel" or None.
        activation: (minimum, maximum) of the output codes, or None.

    Raises:
        InvalidOperatorError: fields that do not fit together.
    """

    family: ClassVar[str] = "qconv"

    input: Tensor
    filter: Tensor
    output_dtype: str = ""
    bias: bool = False
    strides: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    start_padding: tuple[int, ...] | None = None
    end_padding: tuple[int, ...] | None = None
    group_count: int = 1
    input_zero_point: str | None = "per_tensor"
    filter_scale: str = "per_tensor"
    filter_zero_point: str | None = "per_tensor"
    output_zero_point: str | None = "per_tensor"
    activation: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.check_geometry()
        self.replace("output_dtype", self.output_dtype or self.input.dtype)
        self.require_choice("output_dtype", CODE_DTYPES)
        self.require_choice("bias", (True, False))
        self.require_choice("filter_scale", ("per_tensor", "per_channel"))
        self.require_choice("output_zero_point", ("per_tensor", None))
        self.require_activation(self.output_dtype)

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """input, input_scale, input_zero_point, filter, filter_scale, filter_zero_point, bias, output_scale, ..."""
        channels = (self.output_channels,)
        rank = len(self.input.shape)
        bias = TensorRole("bias", "int32", channels, "bias", (rank, rank - 1 if self.channels_last else 1))
        return (
            TensorRole("input", self.input.dtype, self.input.shape, "data"),
            *self.parameter("input_scale", "float32", "per_tensor", "scale"),
            *self.parameter("input_zero_point", self.input.dtype, self.input_zero_point, "zero_point"),
            TensorRole("filter", self.filter.dtype, self.filter.shape, "filter"),
            *self.parameter("filter_scale", "float32", self.filter_scale, "scale"),
            *self.parameter("filter_zero_point", self.filter.dtype, self.filter_zero_point, "zero_point"),
            *((bias,) if self.bias else ()),
            *self.parameter("output_scale", "float32", "per_tensor", "scale"),
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
        check_combined_scale(values, ("input_scale", "filter_scale"), "output_scale")


@dataclass(frozen=True)
class ConvolutionInteger(Convolution):
    """ONNX's ConvInteger: the int32 sums of a convolution, without scales.

    output = sum((input - input_zero_point) * (filter - filter_zero_point)), exact in int32. The fields are those
    of QuantizedLinearConvolution without bias, scales and output parameters.
    """

    family: ClassVar[str] = "iconv"

    input: Tensor
    filter: Tensor
    strides: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    start_padding: tuple[int, ...] | None = None
    end_padding: tuple[int, ...] | None = None
    group_count: int = 1
    input_zero_point: str | None = "per_tensor"
    filter_zero_point: str | None = "per_tensor"

    def __post_init__(self) -> None:
        self.check_geometry()

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """input, input_zero_point, filter, filter_zero_point."""
        return (
            TensorRole("input", self.input.dtype, self.input.shape, "data"),
            *self.parameter("input_zero_point", self.input.dtype, self.input_zero_point, "zero_point"),
            TensorRole("filter", self.filter.dtype, self.filter.shape, "filter"),
            *self.parameter("filter_zero_point", self.filter.dtype, self.filter_zero_point, "zero_point"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """output: int32."""
        return (TensorRole("output", "int32", self.output_shape, "output"),)
