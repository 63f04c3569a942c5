"""Hypothesis strategies: random operators of every class, and random values for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from qcompile.reference import random_values
from qcompile.spec import (
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
    Tensor,
)
from qcompile.spec.elementwise import QUANTIZED_DTYPES
from qcompile.spec.quantize_v2 import MODES, OUTPUT_DTYPES
from qcompile.spec.tensor import CODE_DTYPES, INTEGER_RANGES

code_dtypes = st.sampled_from(CODE_DTYPES)


def values_for(operator: Operator, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Random values for all of the operator's tensors; see `qcompile.reference.random_values`."""
    return random_values(operator, rng)


def values(operator: Operator) -> st.SearchStrategy[dict[str, npt.NDArray[Any]]]:
    """The same as a strategy."""
    return st.integers(0, 2**32 - 1).map(lambda seed: values_for(operator, np.random.default_rng(seed)))


@st.composite
def operators_with_values(
    draw: st.DrawFn, source: st.SearchStrategy[Operator] | None = None
) -> tuple[Operator, dict[str, npt.NDArray[Any]]]:
    """An operator and values for it."""
    operator = draw(operators() if source is None else source)
    return operator, draw(values(operator))


def optional(*choices: str) -> st.SearchStrategy[str | None]:
    """One of the granularities, or None."""
    return st.sampled_from([*choices, None])


@st.composite
def activations(draw: st.DrawFn, output_dtype: str) -> tuple[int, int] | None:
    """None, or a clamp of the output codes."""
    if draw(st.booleans()):
        return None
    low, high = INTEGER_RANGES[output_dtype]
    pair = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    return pair[0], pair[1]


def shapes(max_size: int, max_axes: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of 0 to `max_axes` axes; a few have no elements."""
    sizes = st.one_of(st.integers(1, max_size), st.integers(1, max_size), st.integers(0, max_size))
    return st.lists(sizes, max_size=max_axes).map(tuple)


@st.composite
def _geometry(draw: st.DrawFn, max_size: int) -> dict[str, Any]:
    rank = draw(st.integers(1, 2))
    small = st.integers(1, 3)

    def spatial(entries: st.SearchStrategy[int]) -> tuple[int, ...]:
        return draw(st.tuples(*[entries] * rank))

    groups = draw(st.sampled_from([1, 1, 2, 3, max(1, max_size // 2)]))
    group_inputs = draw(st.integers(1, max(1, max_size // groups)))
    group_outputs = draw(st.integers(1, max(1, max_size // groups)))
    kernel, strides, dilations = spatial(small), spatial(small), spatial(st.sampled_from([1, 1, 2]))
    padding = st.integers(0, 3)
    start, end = spatial(padding), spatial(padding)
    smallest = [
        max(1, (size - 1) * dilation + 1 - before - after)
        for size, dilation, before, after in zip(kernel, dilations, start, end, strict=True)
    ]
    size = tuple(draw(st.integers(least, least + max_size)) for least in smallest)
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    batch, channels, outputs = draw(st.integers(1, 2)), groups * group_inputs, groups * group_outputs
    if layout == "NCHW":
        input_shape, filter_shape = (batch, channels, *size), (outputs, group_inputs, *kernel)
    else:
        input_shape, filter_shape = (batch, *size, channels), (outputs, *kernel, group_inputs)
    return {
        "input": Tensor(input_shape, draw(code_dtypes), layout),
        "filter": Tensor(filter_shape, draw(code_dtypes), layout),
        "strides": strides,
        "dilations": dilations,
        "start_padding": start,
        "end_padding": end,
        "group_count": groups,
        "input_zero_point": draw(optional("per_tensor")),
        "filter_zero_point": draw(optional("per_tensor", "per_channel")),
    }


@st.composite
def quantized_linear_convolutions(draw: st.DrawFn, max_size: int = 8) -> QuantizedLinearConvolution:
    """Up to max_size channels, and up to max_size more than the filter needs along each spatial axis."""
    output_dtype = draw(code_dtypes)
    return QuantizedLinearConvolution(
        **draw(_geometry(max_size)),
        output_dtype=output_dtype,
        bias=draw(st.booleans()),
        filter_scale=draw(st.sampled_from(["per_tensor", "per_channel"])),
        output_zero_point=draw(optional("per_tensor")),
        activation=draw(activations(output_dtype)),
    )


@st.composite
def convolution_integers(draw: st.DrawFn, max_size: int = 8) -> ConvolutionInteger:
    """See `quantized_linear_convolutions`."""
    return ConvolutionInteger(**draw(_geometry(max_size)))


@st.composite
def _product(draw: st.DrawFn, max_size: int) -> dict[str, Any]:
    rows, columns, depth = (draw(st.integers(1, max_size)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))

    def batch_of_one_operand() -> list[int]:
        kept = draw(st.integers(0, len(batch)))
        return [size if draw(st.booleans()) else 1 for size in batch[kept:]]

    return {
        "a": Tensor((*batch_of_one_operand(), rows, depth), draw(code_dtypes)),
        "b": Tensor((*batch_of_one_operand(), depth, columns), draw(code_dtypes)),
        "a_zero_point": draw(optional("per_tensor", "per_row")),
        "b_zero_point": draw(optional("per_tensor", "per_column")),
    }


@st.composite
def quantized_linear_matrix_multiplies(draw: st.DrawFn, max_size: int = 8) -> QuantizedLinearMatrixMultiply:
    """M, N and K up to max_size; 2 to 4 axes with broadcasting."""
    output_dtype = draw(code_dtypes)
    return QuantizedLinearMatrixMultiply(
        **draw(_product(max_size)),
        output_dtype=output_dtype,
        bias=draw(st.booleans()),
        a_scale=draw(st.sampled_from(["per_tensor", "per_row"])),
        b_scale=draw(st.sampled_from(["per_tensor", "per_column"])),
        output_scale=draw(st.sampled_from(["per_tensor", "per_row"])),
        output_zero_point=draw(optional("per_tensor", "per_row")),
        activation=draw(activations(output_dtype)),
    )


@st.composite
def matrix_multiply_integers(draw: st.DrawFn, max_size: int = 8) -> MatrixMultiplyInteger:
    """See `quantized_linear_matrix_multiplies`."""
    return MatrixMultiplyInteger(**draw(_product(max_size)))


@st.composite
def _per_axis(draw: st.DrawFn, shape: tuple[int, ...], required: list[str], free: list[str]) -> dict[str, Any]:
    words = ["per_tensor", "per_axis"] if shape else ["per_tensor"]
    fields: dict[str, Any] = {name: draw(st.sampled_from(words)) for name in required}
    fields |= {name: draw(optional(*words)) for name in free}
    if shape:
        fields["axis"] = draw(st.integers(-len(shape), len(shape) - 1))
    return fields


@st.composite
def requantizes(draw: st.DrawFn, max_size: int = 8) -> Requantize:
    """0 to 4 axes of up to max_size elements."""
    shape, output_dtype = draw(shapes(max_size)), draw(code_dtypes)
    return Requantize(
        Tensor(shape, "int32"),
        output_dtype=output_dtype,
        activation=draw(activations(output_dtype)),
        **draw(_per_axis(shape, ["input_scale", "output_scale"], ["output_zero_point"])),
    )


@st.composite
def quantize_linears(draw: st.DrawFn, max_size: int = 8) -> QuantizeLinear:
    """0 to 4 axes of up to max_size elements."""
    shape = draw(shapes(max_size))
    output_dtype = draw(st.sampled_from(QUANTIZED_DTYPES))
    parameters = draw(_per_axis(shape, ["scale"], ["zero_point"]))
    dtype, precision = draw(st.sampled_from([("float32", "")] * 3 + [("float16", ""), ("float16", "float32")]))
    return QuantizeLinear(Tensor(shape, dtype), output_dtype=output_dtype, precision=precision, **parameters)


@st.composite
def dequantize_linears(draw: st.DrawFn, max_size: int = 8) -> DequantizeLinear:
    """0 to 4 axes of up to max_size elements."""
    shape, dtype = draw(shapes(max_size)), draw(st.sampled_from((*QUANTIZED_DTYPES, "int32")))
    parameters = draw(_per_axis(shape, ["scale"], ["zero_point"]))
    if dtype == "int32":
        parameters["zero_point"] = None
    output_dtype = draw(st.sampled_from(["float32", "float32", "float16"]))
    return DequantizeLinear(Tensor(shape, dtype), output_dtype=output_dtype, **parameters)


def dynamic_quantize_linears(max_size: int = 8) -> st.SearchStrategy[DynamicQuantizeLinear]:
    """0 to 4 axes of up to max_size elements."""
    return shapes(max_size).map(lambda shape: DynamicQuantizeLinear(Tensor(shape, "float32")))


@st.composite
def quantize_v2s(draw: st.DrawFn, max_size: int = 8) -> QuantizeV2:
    """0 to 4 axes of up to max_size elements, all modes."""
    shape, mode = draw(shapes(max_size)), draw(st.sampled_from(MODES))
    axes = [axis for axis in range(len(shape)) if mode != "MIN_FIRST" or shape[axis] == 1]
    return QuantizeV2(
        Tensor(shape, "float32"),
        output_dtype=draw(st.sampled_from(OUTPUT_DTYPES)),
        mode=mode,
        round_mode=draw(st.sampled_from(["HALF_AWAY_FROM_ZERO", *(["HALF_TO_EVEN"] if mode == "SCALED" else [])])),
        narrow_range=draw(st.booleans()),
        axis=draw(st.sampled_from([-1, *axes])),
        ensure_minimum_range=draw(st.sampled_from([0.01, 0.0, 0.5, -1.0, 1e-5, 1e20])),
    )


def operators(max_size: int = 8) -> st.SearchStrategy[Operator]:
    """Operators of all nine classes."""
    return st.one_of(
        quantized_linear_convolutions(max_size),
        convolution_integers(max_size),
        quantized_linear_matrix_multiplies(max_size),
        matrix_multiply_integers(max_size),
        requantizes(max_size),
        quantize_linears(max_size),
        dequantize_linears(max_size),
        dynamic_quantize_linears(max_size),
        quantize_v2s(max_size),
    )
