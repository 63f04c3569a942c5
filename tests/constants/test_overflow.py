"""The int32 accumulator: what the constants prove, what is possible, and the wrap-around on every target."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.constants.overflow import check
from qcompile.spec.values import canonical_values

from ..support import assert_equal


def product(depth: int, **fields: Any) -> qc.QuantizedLinearMatrixMultiply:
    return qc.QuantizedLinearMatrixMultiply(
        qc.Tensor((2, depth), "uint8"), qc.Tensor((depth, 3), "int8"), "uint8", **fields
    )


def checked(operator: Any, **constants: Any) -> str:
    """ "error", "warning" or "fine"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check(operator, canonical_values(operator, constants), "it")
        except qc.AccumulatorOverflowError:
            return "error"
    assert all(issubclass(entry.category, qc.AccumulatorOverflowWarning) for entry in caught)
    return "warning" if caught else "fine"


def test_unknown_zero_points() -> None:
    # 33025 * 255 * 255 is the last that fits
    for a, b in [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]:
        for depth, answer in ((33025, "fine"), (33026, "warning")):
            operator = qc.MatrixMultiplyInteger(qc.Tensor((1, depth), a), qc.Tensor((depth, 1), b))
            assert checked(operator) == answer


def test_known_zero_points_shrink_the_bound() -> None:
    # 255 * 128
    assert checked(product(65000), a_zero_point=0, b_zero_point=0) == "fine"
    assert checked(product(66000), a_zero_point=0, b_zero_point=0) == "warning"
    assert checked(product(65000, a_zero_point=None, b_zero_point=None)) == "fine"
    # 128 * 128
    assert checked(product(131000), a_zero_point=128, b_zero_point=0) == "fine"
    assert checked(product(65000), a_zero_point=0, b_zero_point=127) == "warning"


def test_known_weights_shrink_it_further() -> None:
    small = np.ones((100_000, 3), np.int8)
    assert checked(product(100_000), b=small, b_zero_point=0) == "fine"
    assert checked(product(100_000), b=small, b_zero_point=100) == "warning"
    mixed = np.tile(np.array([[127], [-127]], np.int8), (35_000, 3))
    # the signs matter: the input cannot be large for one weight and negative for the other
    assert checked(product(70_000), b=mixed, b_zero_point=0, a_zero_point=128) == "fine"


def test_proof_needs_all_constants() -> None:
    weights = np.full((70_000, 3), 127, np.int8)
    assert checked(product(70_000), b=weights, b_zero_point=0) == "warning"
    assert checked(product(70_000), b=weights, b_zero_point=0, a_zero_point=0) == "error"
    assert checked(product(70_000, bias=True), b=weights, b_zero_point=0, a_zero_point=0) == "warning"
    bias = np.full(3, -(2**31) + 1, np.int32)
    assert checked(product(70_000, bias=True), b=weights, b_zero_point=0, a_zero_point=0, bias=bias) == "fine"
    assert checked(product(2, bias=True), b=weights[:2], b_zero_point=0, a_zero_point=0, bias=bias) == "fine"
    assert checked(product(2, bias=True), b=-weights[:2], b_zero_point=0, a_zero_point=0, bias=bias) == "error"


def test_the_last_sum_that_fits() -> None:
    weights = np.full((2, 3), 127, np.int8)
    for excess, answer in ((0, "fine"), (1, "error")):
        bias = np.full(3, 2**31 - 1 - 2 * 255 * 127 + excess, np.int32)
        assert checked(product(2, bias=True), b=weights, b_zero_point=0, a_zero_point=0, bias=bias) == answer


def test_a_window_that_is_always_cut_by_the_padding_proves_nothing() -> None:
    def convolution(size: int) -> qc.QuantizedLinearConvolution:
        return qc.QuantizedLinearConvolution(
            qc.Tensor((1, 1, size), "uint8"), qc.Tensor((1, 1, 3), "int8"), bias=True, start_padding=(1,),
            end_padding=(1,), input_zero_point=None, filter_zero_point=None,
        )  # fmt: skip

    constants = {"filter": np.full((1, 1, 3), 127, np.int8), "bias": np.full(1, 2**31 - 80_000, np.int32)}
    assert checked(convolution(3), **constants) == "error"
    assert checked(convolution(1), **constants) == "warning"


def test_compile_warns_and_refuses() -> None:
    with pytest.warns(qc.AccumulatorOverflowWarning, match=r"may overflow: 40000 products"):
        qc.compile(qc.MatrixMultiplyInteger(qc.Tensor((1, 40000), "int8"), qc.Tensor((40000, 1), "int8")), "x86_64")
    constants = {"b": np.full((70_000, 3), 127, np.int8), "b_zero_point": 0, "a_zero_point": 0}
    with pytest.raises(qc.AccumulatorOverflowError, match=r"(?s)overflows for some inputs.*sums from 0 to"):
        qc.compile(product(70_000), "x86_64", constants)


@pytest.mark.filterwarnings("ignore::qcompile.errors.AccumulatorOverflowWarning")
@pytest.mark.parametrize("kind", ["product", "convolution", "depthwise"])
def test_sums_wrap_alike_on_every_target(kind: str, target: str) -> None:
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
    assert_equal({"output": expected}, qc.compile(operator, target).emulated()(**values))
