"""Operator descriptions: what they refuse and how they say so, their names, their dictionaries, their values."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qcompile.errors import InvalidOperatorError, InvalidQuantizationError, InvalidTensorError
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
    TensorRole,
)
from qcompile.spec.naming import parse
from qcompile.spec.serialization import OPERATORS, from_dictionary

from ..strategies import operators


def u8(*shape: int, layout: str = "NCHW") -> Tensor:
    return Tensor(shape, "uint8", layout)


def s8(*shape: int, layout: str = "NCHW") -> Tensor:
    return Tensor(shape, "int8", layout)


def f32(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def s32(*shape: int) -> Tensor:
    return Tensor(shape, "int32")


def convolution(**fields: Any) -> QuantizedLinearConvolution:
    return QuantizedLinearConvolution(**{"input": u8(1, 4, 8, 8), "filter": s8(6, 4, 3, 3), **fields})


def product(**fields: Any) -> QuantizedLinearMatrixMultiply:
    return QuantizedLinearMatrixMultiply(**{"a": u8(5, 7), "b": s8(7, 3), **fields})


# --- validation: one line per refusal

REFUSED_TENSORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Tensor((1.5,), "int8"), "shape must be a sequence of integers"),  # type: ignore[arg-type]
    (lambda: Tensor(4, "int8"), "shape must be a sequence of integers"),  # type: ignore[arg-type]
    (lambda: Tensor((-1,), "int8"), "negative size"),
    (lambda: Tensor((2,), "float64"), "Unknown dtype.*\n.*float64"),
    (lambda: Tensor((2,), "int8", "NCWH"), "Unknown layout"),
    (lambda: Tensor((1,) * 9, "int8"), "too many axes"),
    (lambda: Tensor((2**16, 2**16), "int8"), "too many elements"),
    (lambda: convolution(start_padding=(2**20,) * 2), "too many elements"),
    (lambda: product(a=u8(2**17, 1), b=s8(1, 2**17)), "too many elements"),
]
REFUSED_OPERATORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: convolution(input="x"), "input must be a Tensor"),
    (lambda: convolution(input=u8(0, 4, 8, 8)), "input has an axis without elements"),
    (lambda: convolution(filter=s8(6, 4, 0, 3)), "filter has an axis without elements"),
    (lambda: product(b=s8(7, 0)), "b has an axis without elements"),
    (lambda: QuantizeLinear(f32(4), precision="float64"), "unknown precision"),
    (lambda: DequantizeLinear(u8(4), output_dtype="int8"), "unknown output_dtype"),
    (lambda: convolution(input=f32(1, 4, 8, 8)), "input has the wrong dtype"),
    (lambda: convolution(filter=s32(6, 4, 3, 3)), "filter has the wrong dtype"),
    (lambda: convolution(input=u8(4, 8)), "input has the wrong number of axes"),
    (lambda: convolution(filter=s8(6, 4, 3, 3, 3)), "filter has the wrong number of axes"),
    (lambda: convolution(filter=s8(6, 4, 3)), "same number of axes"),
    (lambda: convolution(filter=s8(6, 4, 3, 3, layout="NHWC")), "layout must follow"),
    (lambda: convolution(strides=(1,)), "strides has the wrong length"),
    (lambda: convolution(strides=(0, 1)), "strides has the wrong length or a bad number"),
    (lambda: convolution(strides=2), "strides must be a sequence of integers"),
    (lambda: convolution(strides=(1.0, 1.0)), "strides must be a sequence of integers"),
    (lambda: convolution(dilations=(1, 0)), "dilations has"),
    (lambda: convolution(start_padding=(-1, 0)), "start_padding has"),
    (lambda: convolution(end_padding=(0, 2**24)), "end_padding has"),
    (lambda: convolution(group_count=0), "group_count must be an integer >= 1"),
    (lambda: convolution(group_count=2.0), "group_count must be an integer >= 1"),
    (lambda: convolution(group_count=4), "not divisible by group_count"),
    (lambda: convolution(group_count=2), "filter's input channels do not fit.*\n.*\n.*2"),
    (lambda: convolution(input_zero_point="per_channel"), "unknown input_zero_point"),
    (lambda: convolution(filter_zero_point="per_row"), "unknown filter_zero_point"),
    (lambda: convolution(filter_scale=None), "unknown filter_scale"),
    (lambda: convolution(output_zero_point="per_channel"), "unknown output_zero_point"),
    (lambda: convolution(output_dtype="int16"), "unknown output_dtype"),
    (lambda: convolution(bias=1), "unknown bias"),
    (lambda: convolution(filter=s8(6, 4, 9, 1)), "filter is larger than the padded input.*\n.*axis 0"),
    (lambda: convolution(dilations=(1, 4)), "filter is larger than the padded input.*\n.*axis 1"),
    (lambda: convolution(activation=(3, 2)), "activation must be"),
    (lambda: convolution(activation=(-1, 2)), "activation must be.*\n.*\n.*0 <= minimum"),
    (lambda: convolution(activation=(0, 256)), "activation must be"),
    (lambda: convolution(activation=(1, 2, 3)), "activation must be"),
    (lambda: convolution(activation=6), "activation must be a sequence"),
    (lambda: ConvolutionInteger(u8(1, 4, 8), s8(6, 3, 3)), "ConvolutionInteger: the filter's input channels"),
    (lambda: product(a=u8(5)), "a has the wrong number of axes"),
    (lambda: product(b=s8(1, 1, 1, 7, 3)), "b has the wrong number of axes"),
    (lambda: product(b=f32(7, 3)), "b has the wrong dtype"),
    (lambda: product(b=s8(6, 3)), "inner sizes"),
    (lambda: product(a=u8(2, 5, 7), b=s8(3, 7, 3)), "batch axes of a and b do not broadcast"),
    (lambda: product(a_scale="per_column"), "unknown a_scale"),
    (lambda: product(a_zero_point="per_column"), "unknown a_zero_point"),
    (lambda: product(b_scale="per_row"), "unknown b_scale"),
    (lambda: product(b_zero_point="per_channel"), "unknown b_zero_point"),
    (lambda: product(output_scale=None), "unknown output_scale"),
    (lambda: product(output_zero_point="per_column"), "unknown output_zero_point"),
    (lambda: product(output_dtype="float32"), "unknown output_dtype"),
    (lambda: product(bias="yes"), "unknown bias"),
    (lambda: product(activation=(0, 300)), "activation must be"),
    (lambda: MatrixMultiplyInteger(u8(5, 7), s8(8, 3)), "MatrixMultiplyInteger: the inner sizes"),
    (lambda: Requantize(f32(4)), "input has the wrong dtype"),
    (lambda: Requantize(s32(4), "uint16"), "unknown output_dtype"),
    (lambda: Requantize(s32(4), input_scale="per_row"), "unknown input_scale"),
    (lambda: Requantize(s32(4), output_scale=None), "unknown output_scale"),  # type: ignore[arg-type]
    (lambda: Requantize(s32(4), output_zero_point="per_channel"), "unknown output_zero_point"),
    (lambda: Requantize(s32(4), input_scale="per_axis"), "axis is outside the input.*\n.*1\n.*-1 to 0"),
    (lambda: Requantize(s32(4), activation=(0, 128)), "activation must be"),
    (lambda: QuantizeLinear(u8(4)), "input has the wrong dtype"),
    (lambda: QuantizeLinear(f32(4), "int32"), "unknown output_dtype"),
    (lambda: QuantizeLinear(f32(4), scale="per_channel"), "unknown scale"),
    (lambda: QuantizeLinear(f32(4), zero_point="per_channel"), "unknown zero_point"),
    (lambda: QuantizeLinear(f32(4, 2), zero_point="per_axis", axis=-3), "axis is outside the input"),
    (lambda: QuantizeLinear(f32(4, 2), scale="per_axis", axis=0.5), "axis is outside"),  # type: ignore[arg-type]
    (lambda: DequantizeLinear(f32(4)), "input has the wrong dtype"),
    (lambda: DequantizeLinear(s32(4)), "an int32 input has no zero point"),
    (lambda: DequantizeLinear(u8(4), scale=None), "unknown scale"),  # type: ignore[arg-type]
    (lambda: DynamicQuantizeLinear(u8(4)), "input has the wrong dtype"),
    (lambda: QuantizeV2(u8(4)), "input has the wrong dtype"),
    (lambda: QuantizeV2(f32(4), "qint8"), "unknown output_dtype"),
    (lambda: QuantizeV2(f32(4), mode="MIN_LAST"), "unknown mode"),
    (lambda: QuantizeV2(f32(4), round_mode="UP"), "unknown round_mode"),
    (lambda: QuantizeV2(f32(4), round_mode="HALF_TO_EVEN"), "HALF_TO_EVEN exists with mode SCALED only"),
    (lambda: QuantizeV2(f32(4), narrow_range=1), "unknown narrow_range"),  # type: ignore[arg-type]
    (lambda: QuantizeV2(f32(4), axis=1), "axis is outside the input"),
    (lambda: QuantizeV2(f32(4), axis=-2), "axis is outside the input"),
    (lambda: QuantizeV2(f32(4), mode="MIN_FIRST", axis=0), "MIN_FIRST has no ranges per axis"),
    (lambda: QuantizeV2(f32(4), ensure_minimum_range="x"), "ensure_minimum_range must be a"),  # type: ignore[arg-type]
    (lambda: QuantizeV2(f32(4), ensure_minimum_range=10**400), "ensure_minimum_range must be a number"),
    (lambda: QuantizeV2(f32(4), ensure_minimum_range=float("nan")), "ensure_minimum_range must be finite"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED_TENSORS, ids=range(len(REFUSED_TENSORS)))
def test_refused_tensors_are_explained(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidTensorError, match=message):
        build()


@pytest.mark.parametrize(("build", "message"), REFUSED_OPERATORS, ids=range(len(REFUSED_OPERATORS)))
def test_refused_operators_are_explained(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidOperatorError, match=message):
        build()


# --- what is filled in, and derived sizes


def test_equal_operators_compare_equal() -> None:
    full = convolution(output_dtype="uint8", strides=[1, 1], dilations=np.array([1, 1]), start_padding=(0, 0),
                       end_padding=(0, 0), activation=(0, 255))  # fmt: skip
    assert full == convolution()
    assert hash(full) == hash(convolution())
    assert QuantizeLinear(f32(2, 3), axis=0) == QuantizeLinear(f32(2, 3))
    assert QuantizeLinear(f32(2, 3), scale="per_axis", axis=-1) == QuantizeLinear(f32(2, 3), scale="per_axis")
    assert QuantizeLinear(Tensor((2, 3), "float32", "NHWC")) == QuantizeLinear(f32(2, 3))
    assert product(a=u8(5, 7, layout="NHWC")) == product()


def test_sizes_of_a_convolution() -> None:
    operator = convolution(
        input=u8(2, 8, 10, 12), filter=s8(6, 4, 3, 2), group_count=2, strides=(2, 3), dilations=(2, 1),
        start_padding=(1, 0), end_padding=(0, 2),
    )  # fmt: skip
    assert operator.padded_spatial == (11, 14)
    assert operator.filter_span == (5, 2)
    assert operator.output_spatial == (4, 5)
    assert operator.output_shape == (2, 6, 4, 5)
    assert operator.accumulation_length == 4 * 6
    assert operator.operations == 2 * 6 * 4 * 5 * 24
    last = convolution(input=u8(2, 10, 12, 8, layout="NHWC"), filter=s8(6, 3, 2, 8))
    assert last.filter.layout == "NHWC"
    assert last.output_shape == (2, 8, 11, 6)
    assert (last.batch, last.channels, last.output_channels, last.filter_channels) == (2, 8, 6, 8)


def test_sizes_of_a_product() -> None:
    operator = product(a=u8(2, 1, 5, 7), b=s8(3, 7, 4))
    assert operator.output_shape == (2, 3, 5, 4)
    assert operator.operations == 2 * 3 * 5 * 4 * 7


def test_tensors_and_outputs() -> None:
    def names(roles: tuple[TensorRole, ...]) -> str:
        return " ".join(role.name for role in roles)

    assert names(convolution(bias=True).tensors) == (
        "input input_scale input_zero_point filter filter_scale filter_zero_point bias output_scale output_zero_point"
    )
    without = convolution(input_zero_point=None, filter_zero_point=None, output_zero_point=None)
    assert names(without.tensors) == "input input_scale filter filter_scale output_scale"
    assert names(product(bias=True).tensors) == (
        "a a_scale a_zero_point b b_scale b_zero_point bias output_scale output_zero_point"
    )
    assert names(DynamicQuantizeLinear(f32(3)).outputs) == "output scale zero_point"
    assert names(QuantizeV2(f32(3)).outputs) == "output output_min output_max"
    assert {role.name for role in convolution(bias=True).tensors if role.optional} == {
        "input_zero_point", "filter_zero_point", "output_zero_point",
    }  # fmt: skip
    with pytest.raises(KeyError):
        convolution().tensor("bias")


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
def test_quantize_v2_of_an_axis_of_one_element_has_scalar_ranges(mode: str) -> None:
    operator = QuantizeV2(f32(4, 1), mode=mode, axis=1)
    assert operator.tensor("min_range").shape == (1,)
    assert operator.tensor("output_min").shape == operator.tensor("output_max").shape == ()


# --- names and dictionaries

NAMES: list[tuple[Operator, str]] = [
    (
        convolution(input=u8(1, 64, 56, 56), filter=s8(64, 64, 3, 3), start_padding=(1, 1), end_padding=(1, 1),
                    bias=True, filter_scale="per_channel"),
        "qconv_u8_s8ct_u8__n1c64h56w56_o64k3x3_pad1x1x1x1_bias",
    ),
    (
        ConvolutionInteger(s8(1, 9, 4, layout="NHWC"), s8(8, 3, 1), strides=(2,), group_count=4,
                           filter_zero_point=None),
        "iconv_s8_s8tn__n1w9c4_o8k3_stride2_group4",
    ),
    (
        product(a=u8(2, 3, 4, 6), b=s8(1, 6, 5), output_dtype="int8", a_scale="per_row", b_scale="per_column",
                activation=(-3, 100)),
        "qmatmul_u8rt_s8ct_s8__x2x3_y1_m4n5k6_clampm3to100",
    ),
    (QuantizeLinear(f32(), zero_point=None), "quantize_f32_u8tn__scalar"),
    (DequantizeLinear(s8(2, 3), scale="per_axis"), "dequantize_s8at_f32__2x3_axis1"),
    (DynamicQuantizeLinear(f32(2, 3)), "dynamicquantize_f32__2x3"),
    (Requantize(s32(2, 3), output_zero_point=None), "requantize_s32_s8tn__2x3"),
    (MatrixMultiplyInteger(u8(4, 6), u8(6, 5)), "imatmul_u8_u8__m4n5k6"),
    (
        QuantizeV2(f32(4), "int32", "SCALED", "HALF_TO_EVEN", True, 0, -1e-5),
        "quantizev2_f32_s32__4_axis0_modescaled_even_narrow_rangem1em05",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "name"), NAMES, ids=[name for _, name in NAMES])
def test_names(operator: Operator, name: str) -> None:
    assert operator.name == name
    assert parse(name) == operator


def test_all_classes_are_named_here() -> None:
    assert {type(operator) for operator, _ in NAMES} == set(OPERATORS)


@settings(max_examples=500, deadline=None)
@given(operators(max_size=12))
def test_names_round_trip(operator: Operator) -> None:
    assert operator.name.isidentifier()
    assert operator.name.isascii()
    again = parse(operator.name)
    assert again == operator
    assert again.tensors == operator.tensors


@settings(max_examples=300, deadline=None)
@given(operators(max_size=12))
def test_dictionaries_round_trip(operator: Operator) -> None:
    assert from_dictionary(json.loads(json.dumps(operator.to_dictionary()))) == operator


@pytest.mark.parametrize(
    "name",
    [
        "", "qconv", "qconv__", "x_f32__4", "quantize_f32_u8", "quantize_f32_u8__", "quantize_f32_u8__04",
        "quantize_f32_u8tt__4", "quantize_f32_u8__4_", "quantize_f32_u8__4_axis1", "quantize_f32_u8__4_bias",
        "quantize_f64_u8__4", "quantize_f32_u9__4", "quantize_f32_u8rt__4", "dequantize_s8__4",
        "quantize_f32__4", "qconv_u8_s8_u8__n1c4h8w8_o6k3x3_pad1", "qconv_u8_s8_u8__n1c4h8w8c4_o6k3x3",
        "qconv_u8_s8_u8__n1h8w8_o6k3x3", "qconv_u8_s8_u8__n1c4h8w8_o6k3x3_stride1x1",
        "qconv_u8_s8_u8__n1c4h8w8_o6k3x3_group0", "qmatmul_u8_s8_u8__m4n5", "quantizev2_f32_u8__4_modefast",
        "quantizev2_f32_u8__4_rangeinf", "requantize_s32_s8__4_clamp5", "quantize_f32_u8__" + "9" * 5000,
        "quantize_f32_u8__4\n", "quantize_f32_u8__\u0664",
    ],
)  # fmt: skip
def test_no_kernel_names(name: str) -> None:
    with pytest.raises(InvalidOperatorError, match="no kernel name"):
        parse(name)


@settings(max_examples=300, deadline=None)
@given(operators(max_size=4), st.data())
def test_damaged_names_are_refused_or_parse_to_themselves(operator: Operator, data: st.DataObject) -> None:
    name = operator.name
    place = data.draw(st.integers(0, len(name) - 1))
    name = name[:place] + data.draw(st.sampled_from("0129_xmpcrantuskhwbo")) + name[place + 1 :]
    with contextlib.suppress(InvalidOperatorError):
        assert parse(name).name == name


INPUT = {"shape": [2, 3], "dtype": "float32"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must be a table"),
        ({}, "'operator' is missing"),
        ({"operator": ["QuantizeLinear"]}, "Unknown operator"),
        ({"operator": "Quantise"}, "Unknown operator"),
        ({"operator": "QuantizeLinear"}, "QuantizeLinear lacks a field.*\n.*\n.*input"),
        ({"operator": "QuantizeLinear", "input": INPUT, "scales": 1}, "no such field.*\n.*scales"),
        ({"operator": "QuantizeLinear", "input": 3}, "input must be a Tensor"),
        ({"operator": "QuantizeLinear", "input": {"shape": [2]}}, "input is no tensor"),
        ({"operator": "QuantizeLinear", "input": {**INPUT, "size": 1}}, "input is no tensor"),
        ({"operator": "QuantizeLinear", "input": {**INPUT, "shape": "23"}}, "no usable shape"),
        ({"operator": "QuantizeLinear", "input": {**INPUT, "shape": [1] * 17}}, "no usable shape"),
        ({"operator": "QuantizeLinear", "input": {**INPUT, "shape": [[1]]}}, "sequence of integers"),
        ({"operator": "QuantizeLinear", "input": INPUT, "scale": ["per_axis"]}, "unknown scale"),
        ({"operator": "QuantizeLinear", "input": INPUT, "scale": INPUT}, "unknown scale"),
        ({"operator": "QuantizeLinear", "input": INPUT, "axis": "1", "scale": "per_axis"}, "axis is outside"),
        ({"operator": "QuantizeV2", "input": INPUT, "axis": list(range(17))}, "axis is too long"),
    ],
)
def test_bad_dictionaries_are_explained(values: Any, message: str) -> None:
    with pytest.raises((InvalidOperatorError, InvalidTensorError), match=message):
        from_dictionary(values)


def test_combinations_of_scales() -> None:
    rows = np.array([1, 1, 1, 1, 1e30], np.float32)
    operator = product(a_scale="per_row", b_scale="per_column", output_scale="per_row")
    operator.check_values({"a_scale": rows, "output_scale": np.full(5, 1e-20, np.float32)})
    with pytest.raises(InvalidQuantizationError, match="multiplier a_scale \\* b_scale is not"):
        operator.check_values({"a_scale": rows, "b_scale": np.array([1, 1, 1e30], np.float32)})
    with pytest.raises(InvalidQuantizationError, match="a_scale \\* b_scale / output_scale"):
        operator.check_values({"a_scale": rows, "b_scale": rows[:3], "output_scale": np.full(5, 1e-20, np.float32)})
    # a denormal product would be flushed by some targets
    small = {"input_scale": np.float32(2.0**-64), "filter_scale": np.float32(2.0**-63)}
    with pytest.raises(InvalidQuantizationError, match="input_scale \\* filter_scale is not"):
        convolution().check_values({name: np.asarray(value) for name, value in small.items()})
    vanishing = {**small, "filter_scale": np.float32(2.0**-62), "output_scale": np.float32(2.0**100)}
    with pytest.raises(InvalidQuantizationError, match="input_scale \\* filter_scale / output_scale"):
        convolution().check_values({name: np.asarray(value) for name, value in vanishing.items()})


def test_dtypes_of_numpy() -> None:
    assert Tensor((2,), np.uint8) == Tensor((2,), np.dtype("uint8")) == u8(2)  # type: ignore[arg-type]
    assert DequantizeLinear(Tensor((np.int64(2),), "int8")).input.shape == (2,)


def test_the_precision_of_a_division_needs_a_scale_that_it_holds() -> None:
    operator = QuantizeLinear(f32(4), precision="float16")
    operator.check_values({"scale": np.float32(0.5)})
    for bad in (1e-9, 1e6):
        with pytest.raises(InvalidQuantizationError, match="scale in float16"):
            operator.check_values({"scale": np.asarray(bad, np.float32)})
