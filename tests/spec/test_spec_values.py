"""Which values are accepted for the tensors of an operator, and in which forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from qcompile.errors import InvalidQuantizationError, InvalidTensorError
from qcompile.spec import (
    Operator,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
    QuantizeV2,
    Tensor,
)
from qcompile.spec.values import canonical_values

CONVOLUTION = QuantizedLinearConvolution(
    Tensor((1, 4, 8, 8), "uint8"), Tensor((6, 4, 3, 3), "int8"), bias=True, filter_scale="per_channel",
    filter_zero_point="per_channel",
)  # fmt: skip
CHANNELS_LAST = QuantizedLinearConvolution(
    Tensor((1, 8, 8, 4), "uint8", "NHWC"), Tensor((6, 3, 3, 4), "int8"), filter_scale="per_channel"
)
PRODUCT = QuantizedLinearMatrixMultiply(
    Tensor((5, 7), "uint8"), Tensor((7, 3), "int8"), bias=True, a_scale="per_row", b_scale="per_column",
    output_zero_point="per_row",
)  # fmt: skip
PER_AXIS = QuantizeLinear(Tensor((2, 5, 3), "float32"), scale="per_axis")
RANGES = QuantizeV2(Tensor((2, 3), "float32"), axis=1)


class Foreign:
    """An array of another library, which offers DLPack only."""

    def __init__(self, array: npt.NDArray[Any]):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def vector(count: int, dtype: str = "float32", *shape: int) -> npt.NDArray[Any]:
    array = np.arange(1, count + 1).astype(dtype)
    return array.reshape(shape) if shape else array


@pytest.mark.parametrize(
    ("operator", "name", "value", "expected"),
    [
        # scalars, of Python and NumPy, and everything of one element
        (CONVOLUTION, "input_scale", 0.5, 0.5),
        (CONVOLUTION, "input_scale", 2, 2.0),
        (CONVOLUTION, "input_scale", np.float32(0.5), 0.5),
        (CONVOLUTION, "input_scale", np.float64(0.5), 0.5),
        (CONVOLUTION, "input_scale", [0.5], 0.5),
        (CONVOLUTION, "input_scale", vector(1, "float32", 1, 1, 1, 1), 1.0),
        (CONVOLUTION, "input_zero_point", 255, 255),
        (CONVOLUTION, "output_zero_point", np.uint8(7), 7),
        # one element for all channels
        (CONVOLUTION, "filter_scale", 0.5, [0.5] * 6),
        (CONVOLUTION, "filter_zero_point", -128, [-128] * 6),
        (CONVOLUTION, "filter_scale", np.ones(1, np.float32), [1.0] * 6),
        # vectors, also in their place among axes of size 1
        (CONVOLUTION, "filter_scale", [1, 2, 3, 4, 5, 6.0], [1, 2, 3, 4, 5, 6]),
        (CONVOLUTION, "filter_scale", (1, 2, 3, 4, 5, 6), [1, 2, 3, 4, 5, 6]),
        (CONVOLUTION, "filter_scale", vector(6), [1, 2, 3, 4, 5, 6]),
        (CONVOLUTION, "filter_scale", vector(6, "float32", 1, 6, 1, 1), [1, 2, 3, 4, 5, 6]),
        (CONVOLUTION, "filter_zero_point", vector(6, "int8", 6, 1, 1), [1, 2, 3, 4, 5, 6]),
        (CONVOLUTION, "bias", vector(6, "int32", 1, 6, 1, 1), [1, 2, 3, 4, 5, 6]),
        (CONVOLUTION, "bias", [1, 2, 3, -4, 5, 2**31 - 1], [1, 2, 3, -4, 5, 2**31 - 1]),
        (CHANNELS_LAST, "filter_scale", vector(6, "float32", 1, 1, 1, 6), [1, 2, 3, 4, 5, 6]),
        (PRODUCT, "a_scale", vector(5, "float32", 1, 1, 5, 1), [1, 2, 3, 4, 5]),
        (PRODUCT, "a_scale", vector(5, "float32", 5, 1), [1, 2, 3, 4, 5]),
        (PRODUCT, "output_zero_point", vector(5, "uint8", 1, 5, 1), [1, 2, 3, 4, 5]),
        (PRODUCT, "b_scale", vector(3, "float32", 1, 1, 1, 3), [1, 2, 3]),
        (PRODUCT, "b_scale", vector(3, "float32", 1, 3), [1, 2, 3]),
        (PRODUCT, "bias", vector(3, "int32", 1, 3), [1, 2, 3]),
        (PER_AXIS, "scale", vector(5, "float32", 1, 5, 1), [1, 2, 3, 4, 5]),
        (RANGES, "min_range", [-1.0, -2.0, -3.0], [-1, -2, -3]),
        # other libraries
        (PER_AXIS, "scale", Foreign(vector(5)), [1, 2, 3, 4, 5]),
    ],
)
def test_accepted(operator: Operator, name: str, value: Any, expected: Any) -> None:
    tensor = operator.tensor(name)
    canonical = canonical_values(operator, {name: value})[name]
    assert (canonical.shape, str(canonical.dtype)) == (tensor.shape, tensor.dtype)
    assert canonical.flags.c_contiguous
    assert canonical.tolist() == expected


def test_arrays_that_are_not_contiguous_are_copied() -> None:
    data = np.arange(2 * 5 * 3, dtype=np.float32).reshape(3, 5, 2).T
    canonical = canonical_values(PER_AXIS, {"input": data})["input"]
    assert canonical.flags.c_contiguous
    np.testing.assert_array_equal(canonical, data)


def test_the_order_is_the_operators() -> None:
    values = canonical_values(CONVOLUTION, {"output_scale": 1.0, "bias": [0] * 6, "input_scale": 1.0})
    assert list(values) == ["input_scale", "bias", "output_scale"]


@pytest.mark.parametrize(
    ("operator", "name", "value", "message"),
    [
        (CONVOLUTION, "weights", 1, "no tensor of that name.*\n.*weights.*\n.*filter"),
        # shapes
        (CONVOLUTION, "input", np.zeros((1, 4, 8, 7), np.uint8), "input has the wrong shape"),
        (CONVOLUTION, "input", np.zeros((4, 8, 8), np.uint8), "input has the wrong shape"),
        (CONVOLUTION, "input_scale", [1.0, 2.0], "input_scale has the wrong shape"),
        (CONVOLUTION, "filter_scale", vector(5), "filter_scale has the wrong shape.*\n.*5.*\n.*6"),
        (CONVOLUTION, "filter_scale", vector(6, "float32", 1, 1, 1, 6), "filter_scale has the wrong shape"),
        (CONVOLUTION, "filter_scale", np.zeros(0, np.float32), "filter_scale has the wrong shape"),
        (CONVOLUTION, "bias", 1, "bias has the wrong shape"),
        (CHANNELS_LAST, "filter_scale", vector(6, "float32", 1, 6, 1, 1), "filter_scale has the wrong shape"),
        (PRODUCT, "a_scale", vector(5, "float32", 1, 5), "a_scale has the wrong shape"),
        (PRODUCT, "b_scale", vector(3, "float32", 3, 1), "b_scale has the wrong shape"),
        (RANGES, "min_range", 1.0, "min_range has the wrong shape"),
        (RANGES, "min_range", vector(1), "min_range has the wrong shape"),
        (RANGES, "min_range", vector(3, "float32", 1, 3), "min_range has the wrong shape"),
        (CONVOLUTION, "filter_scale", [[1.0], [1.0, 2.0]], "filter_scale is a ragged sequence"),
        # types
        (CONVOLUTION, "input", np.zeros((1, 4, 8, 8), np.int8), "input has the wrong dtype.*\n.*int8.*\n.*uint8"),
        (CONVOLUTION, "input_scale", np.ones(1), "input_scale has the wrong dtype.*\n.*float64"),
        (CONVOLUTION, "filter_zero_point", np.int64(3), "filter_zero_point has the wrong dtype"),
        (CONVOLUTION, "filter_zero_point", 1.0, "filter_zero_point has the wrong dtype"),
        (CONVOLUTION, "filter_zero_point", [1.0] * 6, "filter_zero_point has the wrong dtype"),
        (CONVOLUTION, "input_scale", np.ones((), ">f4"), "input_scale has the wrong dtype"),
        (CONVOLUTION, "input_scale", True, "input_scale has the wrong dtype.*\n.*bool"),
        (CONVOLUTION, "input_scale", "0.5", "input_scale has the wrong dtype.*\n.*str"),
        (CONVOLUTION, "input_scale", None, "input_scale has the wrong dtype"),
        (CONVOLUTION, "input_scale", object(), "input_scale has the wrong dtype"),
        (CONVOLUTION, "bias", [2**70] * 6, "bias has the wrong dtype"),
        (CONVOLUTION, "input_scale", Foreign(vector(1, "int32")), "input_scale has the wrong dtype"),
        # numbers
        (CONVOLUTION, "input_zero_point", -1, "input_zero_point has a number outside uint8"),
        (CONVOLUTION, "filter_zero_point", [0, 0, 0, 0, 0, 128], "filter_zero_point has a number outside int8"),
        (CONVOLUTION, "bias", [2**31] * 6, "bias has a number outside int32"),
    ],
)
def test_refused(operator: Operator, name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidTensorError, match=message):
        canonical_values(operator, {name: value})


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 1e-38, 2.0**-101, 1e300])
def test_refused_scales(scale: float) -> None:
    with pytest.raises(InvalidQuantizationError, match="filter_scale has a value that is no scale"):
        canonical_values(CONVOLUTION, {"filter_scale": [1.0, 1.0, scale, 1.0, 1.0, 1.0]})


def test_the_smallest_scale_is_accepted() -> None:
    assert float(canonical_values(CONVOLUTION, {"input_scale": 2.0**-100})["input_scale"]) == 2.0**-100
