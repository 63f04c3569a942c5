"""The NumPy reference against golden data, the worked examples of the arithmetic, and its known traps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

import qcompile as qc
from qcompile.errors import InvalidQuantizationError, InvalidTensorError, QCompileError, UnsupportedError
from qcompile.reference import REFERENCES, evaluate, reference
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
from qcompile.spec.serialization import OPERATORS
from qcompile.spec.values import canonical_values

from ..conformance.cases import Case, ErrorCase, all_cases, cases, error_cases, foreign_cases
from ..strategies import operators_with_values


def array(numbers: Any, dtype: str) -> npt.NDArray[Any]:
    return np.array(numbers, dtype)


def quantize(numbers: Any, scale: float, zero_point: int, dtype: str = "uint8") -> list[int]:
    data = array(numbers, "float32")
    codes = reference(QuantizeLinear(Tensor(data.shape, "float32"), dtype), input=data, scale=scale,
                      zero_point=zero_point)  # fmt: skip
    assert codes.dtype == dtype
    return list(codes.tolist())


def requantize(sums: Any, multiplier: float, zero_point: int = 0, dtype: str = "int8") -> list[int]:
    data = array(sums, "int32")
    operator = Requantize(Tensor(data.shape, "int32"), dtype)
    return list(
        reference(operator, input=data, input_scale=multiplier, output_scale=1.0, output_zero_point=zero_point).tolist()
    )


# --- golden data


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_equals_the_golden_data(case: Case) -> None:
    values = canonical_values(case.operator, case.values)
    case.operator.check_values(values)
    outputs = evaluate(case.operator, values)
    assert set(outputs) == set(case.expected) == {tensor.name for tensor in case.operator.outputs}
    for index, (name, expected) in enumerate(case.expected.items()):
        actual = outputs[name]
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        same = actual.reshape(-1) == expected.reshape(-1)
        if expected.dtype == np.float32:
            same = actual.reshape(-1).view(np.int32) == expected.reshape(-1).view(np.int32)
        if index == 0:
            same[list(case.path_dependent)] = True
        assert same.all(), f"{name}: first difference at {int(np.argmin(same))}"


@pytest.mark.parametrize("case", error_cases(), ids=str)
def test_refuses_what_tensorflow_refuses(case: ErrorCase) -> None:
    fields = dict(case.fields)
    input_fields = fields.pop("input")
    with pytest.raises(QCompileError) as caught:
        reference(QuantizeV2(Tensor(**input_fields), **fields), **case.values)
    assert "\n  given:" in str(caught.value)


def test_all_golden_data_is_read() -> None:
    expected = {
        "onnx_node": 15,
        "onnx_node_other": 3,
        "ort_conv": 81,
        "ort_matmul": 71,
        "ort_misc": 34,
        "ort_deviations": 16,
        "ort_real_layers": 40,
        "tf_quantize_v2": 106,
    }
    assert {suite: len(cases(suite)) for suite in expected} == expected
    assert len(error_cases()) == 8
    assert len(foreign_cases()) == 18
    assert all(case.reason for case in foreign_cases())


def test_the_wrapping_case_is_marked_informative() -> None:
    wrapping = [case for case in cases("ort_deviations") if "wrap" in case.id]
    assert wrapping
    assert all(case.note.startswith("informative") for case in wrapping)


# --- worked examples of the arithmetic


def test_example_quantize_uint8() -> None:
    assert quantize([0.5, -0.5, 0.625, 0.375], 0.25, 128) == [130, 126, 130, 130]


def test_example_accumulator_to_code() -> None:
    operator = QuantizedLinearMatrixMultiply(Tensor((1, 2), "uint8"), Tensor((2, 1), "int8"))
    tensors: dict[str, Any] = {
        "a": array([[130, 126]], "uint8"), "a_scale": 0.25, "a_zero_point": 128,
        "b": array([[3], [-2]], "int8"), "b_scale": 0.5, "b_zero_point": 0,
    }  # fmt: skip
    assert reference(operator, **tensors, output_scale=0.25, output_zero_point=128).tolist() == [[133]]
    integer = MatrixMultiplyInteger(operator.a, operator.b)
    sums = reference(integer, a=tensors["a"], a_zero_point=128, b=tensors["b"])
    assert sums.tolist() == [[10]]
    dequantize = DequantizeLinear(Tensor((1, 1), "int32"), zero_point=None)
    assert reference(dequantize, input=sums, scale=0.125).tolist() == [[1.25]]
    assert quantize([1.25], 0.25, 128) == [133]


def test_example_output_channels_with_their_own_scales() -> None:
    dequantize = DequantizeLinear(Tensor((1, 2), "int32"), scale="per_axis", zero_point=None)
    real = reference(dequantize, input=array([[10, 10]], "int32"), scale=[0.125, 0.0625])
    assert real.tolist() == [[1.25, 0.625]]
    operator = QuantizedLinearConvolution(
        Tensor((1, 2, 1), "uint8"), Tensor((2, 2, 1), "int8"), filter_scale="per_channel"
    )
    codes = reference(
        operator, input=array([130, 126], "uint8").reshape(1, 2, 1), input_scale=0.25, input_zero_point=128,
        filter=array([[3, -2], [3, -2]], "int8").reshape(2, 2, 1), filter_scale=[0.5, 0.25],
        output_scale=0.125, output_zero_point=128,
    )  # fmt: skip
    assert codes.ravel().tolist() == [138, 133]


# 1 is 42.5 steps above the minimum: a tie, which both types send away from their zero
@pytest.mark.parametrize(("dtype", "expected"), [("uint8", [0, 43, 128, 255, 255]), ("int8", [-128, -86, 0, 127, 127])])
def test_example_quantize_v2_range_0_to_6(dtype: str, expected: list[int]) -> None:
    operator = QuantizeV2(Tensor((5,), "float32"), dtype)
    result = reference(operator, input=array([-1, 1, 3.01, 6, 9], "float32"), min_range=0.0, max_range=6.0)
    assert result.output.tolist() == expected
    assert (float(result.output_min), float(result.output_max)) == (0.0, 6.0)


def test_example_quantize_v2_scaled() -> None:
    operator = QuantizeV2(Tensor((3,), "float32"), "int8", mode="SCALED")
    result = reference(operator, input=array([-10, 0, 9], "float32"), min_range=-10.0, max_range=9.0)
    # the scale is -128 / -10 = 12.8, hence the largest value that fits is 127 / 12.8
    assert result.output.tolist() == [-128, 0, 115]
    assert (float(result.output_min), float(result.output_max)) == (-10.0, 9.921875)


# --- traps


def test_trap_saturating_pair_sums() -> None:
    operator = MatrixMultiplyInteger(Tensor((1, 2), "uint8"), Tensor((2, 1), "int8"))
    sums = reference(operator, a=array([[211, 171]], "uint8"), b=array([[71], [107]], "int8"))
    assert sums.tolist() == [[33278]]


def test_trap_order_of_the_scales() -> None:
    operator = QuantizedLinearMatrixMultiply(Tensor((1, 3), "uint8"), Tensor((3, 1), "int8"), "int8")
    codes = reference(
        operator, a=array([[125, 125, 125]], "uint8"), a_scale=0.01, b=array([[1], [1], [1]], "int8"), b_scale=0.02,
        output_scale=0.01,
    )  # fmt: skip
    assert codes.tolist() == [[8]]


def test_trap_zero_point_is_added_after_rounding() -> None:
    # 0.5 and 1.5 go to the even neighbours 0 and 2; added first, the odd zero point would make them 2 and 2 less 1
    assert requantize([1, 3, -1, -3], 0.5, zero_point=1) == [1, 3, 1, -1]
    assert quantize([0.5, 1.5, -0.5, -1.5], 1.0, 1, "int8") == [1, 3, 1, -1]


def test_trap_padding_is_the_zero_point() -> None:
    operator = ConvolutionInteger(
        Tensor((1, 1, 3), "uint8"), Tensor((1, 1, 3), "int8"), start_padding=(1,), end_padding=(2,)
    )
    data = array([[[128, 130, 129]]], "uint8")
    sums = reference(operator, input=data, input_zero_point=128, filter=array([[[1, 10, 100]]], "int8"))
    assert sums.ravel().tolist() == [200, 120, 12, 1]


def test_trap_filter_zero_point_at_the_border() -> None:
    # with a padded input of zeros, no folding of the filter's zero point may leave a trace
    operator = QuantizedLinearConvolution(
        Tensor((1, 1, 2, 2), "int8"), Tensor((1, 1, 3, 3), "uint8"), start_padding=(1, 1), end_padding=(1, 1)
    )
    codes = reference(
        operator, input=np.full((1, 1, 2, 2), -128, np.int8), input_scale=1.0, input_zero_point=-128,
        filter=np.full((1, 1, 3, 3), 255, np.uint8), filter_scale=1.0, filter_zero_point=7, output_scale=1.0,
        output_zero_point=5,
    )  # fmt: skip
    assert codes.ravel().tolist() == [5, 5, 5, 5]


def test_trap_extreme_codes_are_kept() -> None:
    operator = MatrixMultiplyInteger(Tensor((1, 1), "int8"), Tensor((1, 1), "int8"))
    assert reference(operator, a=array([[-128]], "int8"), b=array([[-128]], "int8")).tolist() == [[16384]]
    extremes = {"a": array([[127]], "int8"), "a_zero_point": -128, "b": array([[-128]], "int8"), "b_zero_point": 127}
    assert reference(operator, **extremes).tolist() == [[-65025]]


def test_int32_is_rounded_to_float32_first() -> None:
    # 2^24 + 1 is no float32 and becomes 2^24; 2.5 is a tie and goes to 2, 2.50000015 would go to 3
    assert requantize([2**24 + 1], 2.5 * 2.0**-24) == [2]
    assert requantize([2**31 - 1, -(2**31)], 2.0**-25) == [64, -64]


@pytest.mark.parametrize("value", [127, -128])
def test_int32_accumulators_wrap(value: int) -> None:
    depth = 140_000
    operator = MatrixMultiplyInteger(Tensor((1, depth), "int8"), Tensor((depth, 1), "int8"))
    a = np.full((1, depth), value, np.int8)
    sums = reference(operator, a=a, b=np.full((depth, 1), -128, np.int8), b_zero_point=0)
    exact = depth * value * -128
    assert abs(exact) > 2**31
    assert int(sums[0, 0]) == (exact + 2**31) % 2**32 - 2**31


def test_bias_wraps_the_accumulator() -> None:
    operator = QuantizedLinearMatrixMultiply(Tensor((1, 1), "int8"), Tensor((1, 1), "int8"), bias=True)
    codes = reference(
        operator, a=array([[1]], "int8"), a_scale=1.0, b=array([[1]], "int8"), b_scale=1.0, bias=[2**31 - 1],
        output_scale=2.0**25,
    )  # fmt: skip
    assert codes.tolist() == [[-64]]


def test_activation_clamps_the_codes() -> None:
    operator = Requantize(Tensor((4,), "int32"), "uint8", activation=(10, 20))
    codes = reference(operator, input=array([-5, 3, 8, 99], "int32"), input_scale=1.0, output_scale=1.0,
                      output_zero_point=10)  # fmt: skip
    assert codes.tolist() == [10, 13, 18, 20]


# --- the elementwise operators


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantize_linear_of_special_numbers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    special = [np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-45]
    for zero_point in (limits.min, 3, limits.max):
        codes = quantize(special, 0.5, zero_point, dtype)
        low, high = int(limits.min), int(limits.max)
        assert codes == [low, high, low, high, low, zero_point, zero_point, zero_point]


def test_quantize_linear_divides() -> None:
    # 1 / 49 in float32 is not the inverse of 49: multiplying by it gives 24.499998 for the tie 24.5
    numbers = array([24.5 * 49], "float32")
    assert quantize(numbers, 49.0, 0) == [24]
    assert quantize(array([25.5 * 49], "float32"), 49.0, 0) == [26]


def test_dequantize_linear_per_axis() -> None:
    operator = DequantizeLinear(Tensor((2, 2), "uint8"), scale="per_axis", zero_point="per_axis", axis=-1)
    real = reference(operator, input=array([[0, 1], [255, 3]], "uint8"), scale=[0.5, 2.0], zero_point=[255, 0])
    assert real.dtype == np.float32
    assert real.tolist() == [[-127.5, 2.0], [0.0, 6.0]]


def dynamic(numbers: list[float]) -> tuple[list[int], float, int]:
    operator = DynamicQuantizeLinear(Tensor((len(numbers),), "float32"))
    result = reference(operator, input=array(numbers, "float32"))
    assert result._fields == ("output", "scale", "zero_point")
    assert result.scale.shape == result.zero_point.shape == ()
    return result.output.tolist(), float(result.scale), int(result.zero_point)


def test_dynamic_quantize_linear() -> None:
    assert dynamic([0.0, 0.0]) == ([0, 0], 1.0, 0)
    assert dynamic([255.0, 10.0]) == ([255, 10], 1.0, 0)
    assert dynamic([-255.0, -10.0]) == ([0, 245], 1.0, 255)
    # the zero point 127.5 is a tie and goes to 128
    assert dynamic([-127.5, 127.5]) == ([0, 255], 1.0, 128)


def test_dynamic_quantize_linear_of_special_numbers() -> None:
    assert dynamic([np.nan, 255.0, 1.0]) == ([0, 255, 1], 1.0, 0)
    assert dynamic([np.nan, np.nan]) == ([0, 0], 1.0, 0)
    assert dynamic([np.inf, 3.0, -3.0]) == ([0, 0, 0], np.inf, 0)
    assert dynamic([-np.inf, 3.0, -3.0]) == ([0, 0, 0], np.inf, 0)
    # each end is finite, the width is not
    assert dynamic([-3e38, 3e38, 5.0]) == ([0, 0, 0], np.inf, 0)
    # the width vanishes when divided by 255
    assert dynamic([1e-45]) == ([0], 1.0, 0)


def test_quantize_v2_ignores_a_nan_range() -> None:
    operator = QuantizeV2(Tensor((1,), "float32"), ensure_minimum_range=0.5)
    result = reference(operator, input=array([1.0], "float32"), min_range=np.nan, max_range=2.0)
    assert (float(result.output_min), float(result.output_max)) == (0.0, 2.0)
    # a NaN max_range hides the widening too: max(0, max(NaN, 0.5)), where only a second NaN is ignored
    result = reference(operator, input=array([1.0], "float32"), min_range=0.0, max_range=np.nan)
    assert (float(result.output_min), float(result.output_max)) == (0.0, 0.0)


def test_quantize_v2_flushes_denormal_inputs() -> None:
    operator = QuantizeV2(Tensor((3,), "float32"), "int8", mode="SCALED", ensure_minimum_range=0.0)
    result = reference(operator, input=array([1.1e-38, 2e-38, -1.1e-38], "float32"), min_range=0.0, max_range=0.0)
    assert result.output.tolist() == [0, 7, 0]


def test_quantize_v2_names_the_bad_range() -> None:
    operator = QuantizeV2(Tensor((2,), "float32"), mode="SCALED", axis=0)
    with pytest.raises(InvalidTensorError, match=r"max_range is below min_range.\n  given:    min_range 3.0, max_ran"):
        reference(operator, input=array([1, 1], "float32"), min_range=[0.0, 3.0], max_range=[1.0, 2.0])


# --- the interface


def test_there_is_a_reference_for_every_operator() -> None:
    assert set(REFERENCES) == set(OPERATORS)


def test_an_unknown_operator_is_refused() -> None:
    class Unknown(Operator):
        pass

    with pytest.raises(UnsupportedError, match="Unknown"):
        evaluate(Unknown(), {})


def test_missing_tensors_are_named() -> None:
    operator = QuantizeLinear(Tensor((2,), "float32"))
    with pytest.raises(InvalidTensorError, match="lacks the tensor scale"):
        reference(operator, input=array([1, 2], "float32"))
    with pytest.raises(InvalidTensorError, match="pass input=, scale="):
        reference(operator)


def test_unknown_tensors_are_named() -> None:
    with pytest.raises(InvalidTensorError, match=r"no tensor of that name\.\n  given:    'bias'"):
        reference(DynamicQuantizeLinear(Tensor((2,), "float32")), input=array([1, 2], "float32"), bias=3)


def test_missing_zero_points_are_zero() -> None:
    operator = QuantizeLinear(Tensor((2,), "float32"))
    assert reference(operator, input=array([1, 2], "float32"), scale=1.0).tolist() == [1, 2]


def test_unusable_multipliers_are_refused() -> None:
    with pytest.raises(InvalidQuantizationError, match="input_scale / output_scale"):
        reference(Requantize(Tensor((1,), "int32")), input=array([1], "int32"), input_scale=1e30, output_scale=1e-20)


@settings(max_examples=300, deadline=None)
@given(operators_with_values())
def test_outputs_have_the_described_shapes_and_dtypes(drawn: tuple[Operator, dict[str, npt.NDArray[Any]]]) -> None:
    operator, values = drawn
    before = {name: value.copy() for name, value in values.items()}
    outputs = evaluate(operator, values)
    assert list(outputs) == [tensor.name for tensor in operator.outputs]
    for tensor in operator.outputs:
        output = outputs[tensor.name]
        assert isinstance(output, np.ndarray)
        assert (output.shape, str(output.dtype)) == (tensor.shape, tensor.dtype)
        assert output.flags.c_contiguous
    for name, value in before.items():
        np.testing.assert_array_equal(value, values[name])


def test_infinite_ranges_of_quantize_v2() -> None:
    """0 / 0 is NaN, which a compiler may take for 0."""
    for dtype in ("uint8", "uint16"):
        operator = QuantizeV2(Tensor((3,), "float32"), dtype, mode="SCALED")
        values = {"input": np.array([0, 1, np.inf], np.float32), "min_range": 0.0, "max_range": float("inf")}
        assert np.isnan(reference(operator, **values).output_min)
        assert np.isnan(qc.compile(operator)(**values).output_min)


# --- TensorFlow's documented examples of QuantizeV2, on the reference and on a kernel

EXAMPLES = [
    # a range of [0, 6]: quint8 codes are input * 255 / 6, qint8 codes 128 less
    ("MIN_COMBINED", "uint8", 0.0, 6.0, [0.0, 3.0, 6.0, 7.0], [0, 128, 255, 255], (0.0, 6.0)),
    ("MIN_COMBINED", "int8", 0.0, 6.0, [0.0, 3.0, 6.0, 7.0], [-128, -1, 127, 127], (0.0, 6.0)),
    # a range of [-10, 9]: the scale is min(-128 / -10, 127 / 9) = 12.8, and the range becomes [-10, 127 / 12.8]
    ("SCALED", "int8", -10.0, 9.0, [-10.0, 0.0, 9.0, 9.921875], [-128, 0, 115, 127], (-10.0, 9.921875)),
]


@pytest.mark.parametrize(("mode", "dtype", "low", "high", "numbers", "codes", "ends"), EXAMPLES)
@pytest.mark.parametrize("compute", ["reference", "kernel"])
def test_documented_examples_of_tensorflow(
    mode: str, dtype: str, low: float, high: float, numbers: Any, codes: Any, ends: Any, compute: str
) -> None:
    operator = QuantizeV2(Tensor((4,), "float32"), dtype, mode=mode)
    tensors = {"input": np.array(numbers, np.float32), "min_range": low, "max_range": high}
    result = reference(operator, **tensors) if compute == "reference" else qc.compile(operator)(**tensors)
    assert result.output.tolist() == codes
    assert (float(result.output_min), float(result.output_max)) == ends
