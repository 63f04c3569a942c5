"""The int32 accumulator: what the constants prove, what is possible, and the wrap-around on every target."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.constants.overflow import check
from qcompile.spec.values import canonical_values

from ..support import assert_equal, constant_names, split_values

#: part of a message -> what it means
VERDICTS = {"overflows for some inputs": "proved", "may overflow": "possible"}


def product(depth: int, **fields: Any) -> qc.QuantizedLinearMatrixMultiply:
    return qc.QuantizedLinearMatrixMultiply(
        qc.Tensor((2, depth), "uint8"), qc.Tensor((depth, 3), "int8"), "uint8", **fields
    )


def checked(operator: Any, **constants: Any) -> str:
    """ "proved", "possible" or "fine"; the warning and the error must agree."""
    values = canonical_values(operator, constants)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(operator, values, "it")
    assert all(issubclass(entry.category, qc.AccumulatorOverflowWarning) for entry in caught)
    verdict = next((word for entry in caught for part, word in VERDICTS.items() if part in str(entry.message)), "fine")
    assert (verdict == "fine") == (not caught)
    if verdict == "fine":
        check(operator, values, "it", overflow="error")
    else:
        with pytest.raises(qc.AccumulatorOverflowError) as failure:
            check(operator, values, "it", overflow="error")
        assert [word for part, word in VERDICTS.items() if part in failure.value.problem] == [verdict]
    return verdict


def test_unknown_zero_points() -> None:
    # 33025 * 255 * 255 is the last that fits
    for a, b in [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]:
        for depth, answer in ((33025, "fine"), (33026, "possible")):
            operator = qc.MatrixMultiplyInteger(qc.Tensor((1, depth), a), qc.Tensor((depth, 1), b))
            assert checked(operator) == answer


def test_known_zero_points_shrink_the_bound() -> None:
    # 255 * 128
    assert checked(product(65000), a_zero_point=0, b_zero_point=0) == "fine"
    assert checked(product(66000), a_zero_point=0, b_zero_point=0) == "possible"
    assert checked(product(65000, a_zero_point=None, b_zero_point=None)) == "fine"
    # 128 * 128
    assert checked(product(131000), a_zero_point=128, b_zero_point=0) == "fine"
    assert checked(product(65000), a_zero_point=0, b_zero_point=127) == "possible"


def test_known_weights_shrink_it_further() -> None:
    small = np.ones((100_000, 3), np.int8)
    assert checked(product(100_000), b=small, b_zero_point=0) == "fine"
    assert checked(product(100_000), b=small, b_zero_point=100) == "possible"
    mixed = np.tile(np.array([[127], [-127]], np.int8), (35_000, 3))
    # the signs matter: the input cannot be large for one weight and negative for the other
    assert checked(product(70_000), b=mixed, b_zero_point=0, a_zero_point=128) == "fine"


def test_proof_needs_all_constants() -> None:
    weights = np.full((70_000, 3), 127, np.int8)
    assert checked(product(70_000), b=weights, b_zero_point=0) == "possible"
    assert checked(product(70_000), b=weights, b_zero_point=0, a_zero_point=0) == "proved"
    assert checked(product(70_000, bias=True), b=weights, b_zero_point=0, a_zero_point=0) == "possible"
    bias = np.full(3, -(2**31) + 1, np.int32)
    assert checked(product(70_000, bias=True), b=weights, b_zero_point=0, a_zero_point=0, bias=bias) == "fine"
    assert checked(product(2, bias=True), b=weights[:2], b_zero_point=0, a_zero_point=0, bias=bias) == "fine"
    assert checked(product(2, bias=True), b=-weights[:2], b_zero_point=0, a_zero_point=0, bias=bias) == "proved"


def test_the_last_sum_that_fits() -> None:
    weights = np.full((2, 3), 127, np.int8)
    for excess, answer in ((0, "fine"), (1, "proved")):
        bias = np.full(3, 2**31 - 1 - 2 * 255 * 127 + excess, np.int32)
        assert checked(product(2, bias=True), b=weights, b_zero_point=0, a_zero_point=0, bias=bias) == answer


def test_a_window_that_is_always_cut_by_the_padding_proves_nothing() -> None:
    def convolution(size: int) -> qc.QuantizedLinearConvolution:
        return qc.QuantizedLinearConvolution(
            qc.Tensor((1, 1, size), "uint8"), qc.Tensor((1, 1, 3), "int8"), bias=True, start_padding=(1,),
            end_padding=(1,), input_zero_point=None, filter_zero_point=None,
        )  # fmt: skip

    constants = {"filter": np.full((1, 1, 3), 127, np.int8), "bias": np.full(1, 2**31 - 80_000, np.int32)}
    assert checked(convolution(3), **constants) == "proved"
    assert checked(convolution(1), **constants) == "possible"


def test_the_ends_of_several_zero_points_do_not_add_up() -> None:
    # centred inputs are 0 .. 255 in row 0 and -255 .. 0 in row 1; the largest sum of each is 255 * 127
    operator = qc.QuantizedLinearMatrixMultiply(
        qc.Tensor((2, 2), "uint8"), qc.Tensor((2, 1), "int8"), bias=True, a_zero_point="per_row", b_zero_point=None
    )
    weights, zero_points = np.array([[127], [-127]], np.int8), np.array([0, 255], np.uint8)
    for excess, answer in ((0, "fine"), (1, "proved")):
        bias = np.full(1, 2**31 - 1 - 255 * 127 + excess, np.int32)
        assert checked(operator, b=weights, a_zero_point=zero_points, bias=bias) == answer


def test_no_constants_make_every_input_overflow() -> None:
    # an input of zero points sums to the bias, whatever pushes the others out of int32
    rng = np.random.default_rng(3)
    for end in (-(2**31), 2**31 - 1):
        operator = product(5, bias=True)
        zero_point, weights = int(rng.integers(0, 256)), rng.integers(-128, 128, (5, 3), dtype=np.int8)
        bias = np.full(3, end, np.int32)
        assert checked(operator, b=weights, b_zero_point=0, a_zero_point=zero_point, bias=bias) == "proved"
        data = np.full((2, 5), zero_point, np.uint8)
        scales = {"a_scale": 2.0**-20, "b_scale": 1.0, "output_scale": 2.0**5, "output_zero_point": 128}
        fixed: dict[str, Any] = {"b": weights, "b_zero_point": 0, "a_zero_point": zero_point, "bias": bias, **scales}
        result: Any = qc.reference(operator, a=data, **fixed)
        assert np.unique(result).tolist() == [128 + round(end * 2.0**-25)]


def test_compile_warns_or_refuses() -> None:
    operator: Any = qc.MatrixMultiplyInteger(qc.Tensor((1, 40000), "int8"), qc.Tensor((40000, 1), "int8"))
    with pytest.warns(qc.AccumulatorOverflowWarning, match=r"may overflow: 40000 products"):
        qc.compile(operator, "x86_64")
    with pytest.raises(qc.AccumulatorOverflowError, match=r"(?s)may overflow.*give b, b_zero_point, a_zero_point as"):
        qc.compile(operator, "x86_64", overflow="error")
    constants = {"b": np.full((70_000, 3), 127, np.int8), "b_zero_point": 0, "a_zero_point": 0}
    with pytest.warns(qc.AccumulatorOverflowWarning, match=r"overflows for some inputs: sums from 0 to 22669"):
        qc.compile(product(70_000), "x86_64", constants)
    with pytest.raises(
        qc.AccumulatorOverflowError, match=r"(?s)overflows for some inputs.*sums from 0 to 22669.*-21474"
    ):
        qc.compile(product(70_000), "x86_64", constants, overflow="error")
    with pytest.raises(qc.AccumulatorOverflowError, match="may overflow"):
        qc.compile([product(2), product(70_000)], "x86_64", overflow="error")


def test_what_cannot_overflow_compiles_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qc.compile(product(20), "x86_64", overflow="error")
        qc.compile(qc.QuantizeLinear(qc.Tensor((4,), "float32")), "x86_64", overflow="error")


@pytest.mark.parametrize("value", ["ignore", "Error", None, True, np.array(["warn", "error"])])
def test_another_value(value: Any) -> None:
    for operator in (product(20), qc.QuantizeLinear(qc.Tensor((4,), "float32"))):
        with pytest.raises(qc.UnknownNameError, match=r"(?s)Unknown value of overflow.*accepted: 'warn', 'error'"):
            qc.compile(operator, "x86_64", overflow=value)


@pytest.mark.parametrize("known", [False, True])
def test_a_long_product_is_exact_where_its_sums_fit_and_wraps_elsewhere(known: bool, target: str) -> None:
    depth = 140_000
    rng = np.random.default_rng(4)
    operator = qc.MatrixMultiplyInteger(qc.Tensor((2, depth), "uint8"), qc.Tensor((depth, 3), "uint8"))
    # row 0 sums to less than 255 * depth * 60, row 1 to 255 * 255 * depth = 2.12 * 2^32 where the weights are largest
    a = np.stack([rng.integers(0, 60, depth, dtype=np.uint8), np.full(depth, 255, np.uint8)])
    b = rng.integers(0, 256, (depth, 3), dtype=np.uint8)
    b[:, 2] = 255
    weights = {"b": b, "b_zero_point": np.uint8(0), "a_zero_point": np.uint8(0)}
    verdict = "overflows for some inputs" if known else "may overflow"
    with pytest.warns(qc.AccumulatorOverflowWarning, match=verdict):
        kernel = qc.compile(operator, target, weights if known else None).emulated()
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert exact[0].max() < 2**31 < 2**32 < exact[1].min()
    expected: Any = qc.reference(operator, a=a, **weights)
    assert np.array_equal(expected[0], exact[0])
    assert np.array_equal(expected, (exact % 2**32).astype(np.uint32).view(np.int32))
    assert_equal({"output": expected}, kernel(a=a) if known else kernel(a=a, **weights))


@pytest.mark.filterwarnings("ignore::qcompile.errors.AccumulatorOverflowWarning")
@pytest.mark.parametrize("kind", ["product", "convolution", "depthwise"])
@pytest.mark.parametrize("known", [False, True])
def test_sums_wrap_alike_on_every_target(kind: str, known: bool, target: str) -> None:
    rng = np.random.default_rng(8)
    if kind == "product":
        operator: Any = qc.MatrixMultiplyInteger(qc.Tensor((3, 40_000), "int8"), qc.Tensor((40_000, 9), "uint8"))
        values: dict[str, Any] = {
            "a": np.where(rng.random((3, 40_000)) < 0.9, 127, -128).astype(np.int8),
            "b": np.full((40_000, 9), 255, np.uint8),
            "a_zero_point": np.int8(-128),
            "b_zero_point": np.uint8(0),
        }
    else:
        groups = 5 if kind == "depthwise" else 1
        operator = qc.QuantizedLinearConvolution(
            qc.Tensor((1, 5, 6, 7), "uint8"), qc.Tensor((5, 5 // groups, 3, 3), "int8"), group_count=groups, bias=True,
            start_padding=(1, 1), end_padding=(1, 1),
        )  # fmt: skip
        values = {
            "input": rng.integers(0, 256, (1, 5, 6, 7), dtype=np.uint8),
            "filter": rng.integers(-128, 128, (5, 5 // groups, 3, 3), dtype=np.int8),
            "bias": np.array([2**31 - 1, -(2**31), 2**31 - 1000, 5 - 2**31, 0], np.int32),
            "input_scale": 2.0**-20,
            "filter_scale": 2.0**-10,
            "output_scale": 2.0**-6,
            "output_zero_point": 128,
        }
    expected: Any = qc.reference(operator, **values)
    constants, inputs = split_values(values, constant_names(operator) if known else set())
    assert_equal({"output": expected}, qc.compile(operator, target, constants).emulated()(**inputs))
