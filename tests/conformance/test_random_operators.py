"""Random operators, compiled with random constants, equal the reference on every CPU target, emulated or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qcompile as qc
from qcompile import catalogue
from qcompile.reference import evaluate
from qcompile.spec import Operator

from .. import strategies
from ..conftest import TESTED_TARGETS
from ..support import assert_equal, split_values

SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ACCUMULATING = (
    strategies.quantized_linear_convolutions,
    strategies.convolution_integers,
    strategies.quantized_linear_matrix_multiplies,
    strategies.matrix_multiply_integers,
)
ELEMENTWISE = (
    strategies.requantizes,
    strategies.quantize_linears,
    strategies.dequantize_linears,
    strategies.dynamic_quantize_linears,
    strategies.quantize_v2s,
)
pytestmark = pytest.mark.filterwarnings("ignore::qcompile.errors.AccumulatorOverflowWarning")


#: a target with the plain rule alone, which the others prefer a faster one to
PLAIN_TARGET = str(Path(__file__).parents[1] / "data" / "targets" / "plain.toml")


def check(
    operator: Operator, values: dict[str, Any], constant_names: set[str], targets: Sequence[str] = TESTED_TARGETS
) -> None:
    constants, run_time = split_values(values, constant_names)
    expected = evaluate(operator, values)
    for target in targets:
        kernel = qc.compile(operator, target, constants).emulated()
        for threads in (1,) if kernel.variant.emulated_cpu else (1, 3):
            assert_equal(expected, kernel(num_threads=threads, **run_time))


def draw_and_check(data: st.DataObject, operator: Operator) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    values = strategies.values_for(operator, np.random.default_rng(seed))
    parameters = sorted(tensor.name for tensor in operator.tensors if tensor.role != "data")
    names = data.draw(st.one_of(st.just(set(parameters)), st.sets(st.sampled_from(parameters or ["none"]))))
    # three of them for each operator: each target meets most operators, and none all
    known = [*TESTED_TARGETS, *([PLAIN_TARGET] if operator.accumulation_length else [])]
    targets = data.draw(
        st.lists(st.sampled_from(known), min_size=min(3, len(known)), max_size=3, unique=True), label="targets"
    )
    check(operator, values, names, targets)


@pytest.mark.parametrize("source", ACCUMULATING, ids=lambda source: source.__name__)
@pytest.mark.parametrize("max_size", [9, 40])
def test_accumulating(source: Any, max_size: int) -> None:
    @settings(SETTINGS, max_examples=25 if max_size < 20 else 15)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        draw_and_check(data, data.draw(source(max_size=max_size), label="operator"))

    run()


@pytest.mark.parametrize("source", ELEMENTWISE, ids=lambda source: source.__name__)
def test_elementwise(source: Any) -> None:
    @settings(SETTINGS, max_examples=25)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        draw_and_check(data, data.draw(source(max_size=40), label="operator"))

    run()


@pytest.mark.parametrize("width", [1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33])
def test_sizes_around_the_vectors(width: int, target: str) -> None:
    """Rows, columns and depth one below, at and above every power of two."""
    rng = np.random.default_rng(width)
    operators = {
        "product": qc.QuantizedLinearMatrixMultiply(
            qc.Tensor((width, 17), "int8"), qc.Tensor((17, width), "uint8"), "int8", bias=True, b_scale="per_column"
        ),
        "wide": qc.QuantizedLinearConvolution(
            qc.Tensor((1, 3, 5, width + 2), "uint8"), qc.Tensor((width, 3, 3, 3), "int8"), "uint8"
        ),
        "depthwise": qc.QuantizedLinearConvolution(
            qc.Tensor((1, 4, 6, width), "int8", "NHWC"), qc.Tensor((width, 3, 3, 1), "int8"), group_count=width
        ),
        "flat": qc.QuantizeLinear(qc.Tensor((width,), "float32"), "int8"),
        "columns": qc.DequantizeLinear(qc.Tensor((5, width), "uint8"), scale="per_axis", zero_point="per_axis"),
    }
    values = {name: strategies.values_for(operator, rng) for name, operator in operators.items()}
    constants = {
        name: {tensor: value for tensor, value in own.items() if tensor not in ("input", "a")}
        for name, own in values.items()
    }
    bundle = qc.compile(operators, target, constants).emulated()
    for name, operator in operators.items():
        kernel = bundle[name]
        run_time = {tensor.name: values[name][tensor.name] for tensor in kernel.inputs}
        assert_equal(evaluate(operator, values[name]), kernel(**run_time))


def test_every_example_of_the_catalogue() -> None:
    examples = {entry.name: entry for row in catalogue.CATALOGUE for entry in row.examples}
    bundle = qc.compile(examples, TESTED_TARGETS)
    assert bundle.names == list(examples)
    results = qc.verify(bundle, rounds=1, emulate=True)
    assert len(results) == len(examples) * len(TESTED_TARGETS)
    for result in results:
        assert result.is_exact, result.detail
