"""Random values are canonical, reproducible, and reach the hard cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from qcompile.reference import evaluate, random_values
from qcompile.spec import Operator, QuantizedLinearConvolution, QuantizedLinearMatrixMultiply, Requantize, Tensor
from qcompile.spec.values import canonical_values

from ..strategies import operators, values_for


@settings(max_examples=200, deadline=None)
@given(operators())
def test_random_values_are_canonical(operator: Operator) -> None:
    values = values_for(operator, np.random.default_rng(5))
    assert list(values) == [tensor.name for tensor in operator.tensors]
    for tensor in operator.tensors:
        assert (values[tensor.name].shape, str(values[tensor.name].dtype)) == (tensor.shape, tensor.dtype)
    operator.check_values(canonical_values(operator, values))
    again = random_values(operator, np.random.default_rng(5))
    assert all(values[name].tobytes() == again[name].tobytes() for name in values)


CONVOLUTION = QuantizedLinearConvolution(
    Tensor((1, 8, 9, 9), "uint8"), Tensor((8, 8, 3, 3), "int8"), "int8", bias=True, filter_scale="per_channel"
)
PRODUCT = QuantizedLinearMatrixMultiply(Tensor((9, 300), "int8"), Tensor((300, 9), "uint8"), "uint8")
REQUANTIZE = Requantize(Tensor((20, 20), "int32"))


@pytest.mark.parametrize("operator", [CONVOLUTION, PRODUCT, REQUANTIZE], ids=lambda operator: operator.name)
def test_random_values_spread_the_outputs(operator: Operator) -> None:
    extremes, ties = 0, 0
    for seed in range(30):
        values = random_values(operator, np.random.default_rng(seed))
        codes = evaluate(operator, values)["output"]
        assert np.unique(codes).size >= 5
        limits = np.iinfo(codes.dtype)
        assert np.mean((codes == limits.min) | (codes == limits.max)) < 0.9
        data = values[operator.tensors[0].name]
        extremes += data.min() == np.iinfo(data.dtype).min and data.max() == np.iinfo(data.dtype).max
        if isinstance(operator, Requantize):
            scaled = data.astype(np.float32) * (values["input_scale"] / values["output_scale"])
            ties += int(np.sum(np.abs(scaled - np.trunc(scaled)) == 0.5))
    assert extremes == 30
    assert ties > 0 or not isinstance(operator, Requantize)
