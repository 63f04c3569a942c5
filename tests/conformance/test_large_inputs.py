"""Inputs that do not stay in the cache are centred piece by piece, by the tasks that read them."""

from __future__ import annotations

import numpy as np
import pytest

import qcompile as qc
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values

#: height, width, channels, taps, padding: a little more than 256 KiB, also as bytes
SHAPES = {
    "pointwise": (66, 63, 64, 1, 0),
    "pointwise, few channels": (301, 300, 3, 1, 0),
    "pointwise, no whole vectors": (80, 77, 44, 1, 0),
    "3x3": (66, 63, 64, 3, 1),
    "3x3, few channels": (301, 300, 3, 3, 1),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_exact(name: str, layout: str, target: str) -> None:
    height, width, channels, taps, padding = SHAPES[name]
    data, filters = (1, height, width, channels), (9, taps, taps, channels)
    if layout == "NCHW":
        data, filters = (1, channels, height, width), (9, channels, taps, taps)
    operator = qc.QuantizedLinearConvolution(
        qc.Tensor(data, "int8", layout), qc.Tensor(filters, "uint8", layout),
        start_padding=(padding, padding), end_padding=(padding, padding),
    )  # fmt: skip
    values = dict(random_values(operator, np.random.default_rng(3)))
    values["filter_zero_point"] = np.uint8(128)  # the weights fit int8, so that nothing keeps the input together
    constants = {tensor: value for tensor, value in values.items() if tensor != "input"}
    kernel = qc.compile(operator, target, constants).emulated()
    assert np.array_equal(kernel(input=values["input"]), evaluate(operator, values)["output"])
