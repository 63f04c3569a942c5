"""The rule that multiplies bytes: chosen only where the weights prove it exact, and exact at the ends of its domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile import records
from qcompile.backends import targets
from qcompile.constants.facts import NOTHING, Facts, facts_of
from qcompile.planning import find
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values
from qcompile.schedules.rule import load_rule
from qcompile.spec import Operator
from qcompile.tuning.draws import drawn_values

TARGET = "x86_64-avx2"
AVX2 = targets.load(TARGET)

needs_avx2 = pytest.mark.skipif(bool(targets.missing(AVX2)), reason="this CPU has no AVX2")


def product(rows: int = 5, depth: int = 33, columns: int = 20, types: str = "us", **fields: Any) -> Operator:
    a, b = ({"u": "uint8", "s": "int8"}[letter] for letter in types)
    return qc.QuantizedLinearMatrixMultiply(qc.Tensor((rows, depth), a), qc.Tensor((depth, columns), b), **fields)


def convolution(layout: str, types: str = "us", channels: int = 6, **fields: Any) -> Operator:
    x, w = ({"u": "uint8", "s": "int8"}[letter] for letter in types)
    shapes = {"NHWC": ((1, 9, 7, channels), (16, 3, 3, channels)), "NCHW": ((1, channels, 9, 7), (16, channels, 3, 3))}
    data, filters = shapes[layout]
    return qc.QuantizedLinearConvolution(
        qc.Tensor(data, x, layout), qc.Tensor(filters, w, layout), bias=True, start_padding=(1, 2), end_padding=(1, 0),
        **fields,
    )  # fmt: skip


def weights_name(operator: Operator) -> str:
    return "b" if any(tensor.name == "b" for tensor in operator.tensors) else "filter"


def values_of(operator: Operator, pattern: str, data: int | None) -> dict[str, Any]:
    """Random values with weights at the ends of the domain, and data of one value where it is given."""
    rng = np.random.default_rng(3)
    values = random_values(operator, rng)
    name = weights_name(operator)
    shape, dtype = values[name].shape, values[name].dtype
    centre = 128 if dtype == np.uint8 else 0
    codes = {
        "least": np.full(shape, -64),
        "largest": np.full(shape, 64),
        "alternating": np.resize([64, -64], shape),
        "pairs": np.resize([64, 64, -64, -64], shape),
        "random": rng.integers(-64, 65, shape),
    }[pattern]
    values[name] = (codes + centre).astype(dtype)
    if f"{name}_zero_point" in values:
        values[f"{name}_zero_point"] = np.full_like(values[f"{name}_zero_point"], centre)
    if data is not None:
        first = operator.tensors[0]
        values[first.name] = np.full(first.shape, data, first.dtype)
    return values


OPERATORS = [
    *(product(types=types) for types in ("us", "ss", "uu", "su")),
    product(rows=1, depth=64, columns=40, b_scale="per_column"),
    product(rows=9, depth=5, a_scale="per_row", a_zero_point="per_row", b_zero_point="per_column"),
    qc.MatrixMultiplyInteger(qc.Tensor((2, 4, 30), "uint8"), qc.Tensor((2, 30, 16), "int8")),
    qc.MatrixMultiplyInteger(qc.Tensor((3, 4, 7), "int8"), qc.Tensor((7, 9), "uint8"), b_zero_point="per_column"),
    *(convolution(layout, types) for layout in ("NHWC", "NCHW") for types in ("us", "ss", "uu", "su")),
    convolution("NHWC", channels=3, strides=(2, 2)),
    convolution("NCHW", channels=5, dilations=(1, 2)),
    convolution("NHWC", channels=8, dilations=(2, 2), filter_scale="per_channel", filter_zero_point="per_channel"),
    qc.ConvolutionInteger(qc.Tensor((1, 8, 6, 6), "int8"), qc.Tensor((24, 4, 1, 1), "int8"), group_count=2),
]


@needs_avx2
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_exact_at_the_ends_of_the_domain(operator: Operator) -> None:
    low, high = (0, 255) if operator.tensors[0].dtype == "uint8" else (-128, 127)
    first = operator.tensors[0].name
    patterns = ("least", "largest", "alternating", "pairs", "random")
    constants = {
        pattern: {name: value for name, value in values_of(operator, pattern, None).items() if name != first}
        for pattern in patterns
    }
    bundle = qc.compile(dict.fromkeys(patterns, operator), TARGET, constants)
    for pattern, fixed in constants.items():
        kernel = bundle[pattern]
        assert kernel.variant.rule == "cpu_bytes"
        for data in (None, low, high):
            given = values_of(operator, "random", data)[first]
            assert np.array_equal(kernel(**{first: given}), evaluate(operator, {**fixed, first: given})["output"])


@needs_avx2
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("operator", [product(), convolution("NHWC"), convolution("NCHW")], ids=lambda one: one.name)
def test_weights_of_the_whole_range_stay_exact_with_another_rule(operator: Operator, weight: int) -> None:
    values = values_of(operator, "random", 255)
    name = weights_name(operator)
    values[name] = np.full_like(values[name], weight)
    constants = {tensor.name: values[tensor.name] for tensor in operator.tensors if tensor.role != "data"}
    kernel = qc.compile(operator, TARGET, constants)
    assert kernel.variant.rule == "cpu_widen16"
    first = operator.tensors[0].name
    assert np.array_equal(kernel(**{first: values[first]}), evaluate(operator, values)["output"])


def reason(operator: Operator, facts: Facts) -> str:
    return dict(find(operator, AVX2, facts=facts).refused)["cpu_bytes"]


def test_the_rule_says_why_it_does_not_apply() -> None:
    assert find(product(), AVX2, facts=Facts((-64, 64))).rule == "cpu_bytes"
    assert "weights reach 65, and it is exact up to 64" in reason(product(), Facts((-65, 65)))
    assert "not constant" in reason(product(), NOTHING)
    sse2 = targets.load("x86_64")
    assert find(product(), sse2, facts=Facts((-1, 1))).rule == "cpu_widen16"


@pytest.mark.parametrize(
    ("constants", "weights"),
    [
        ({}, None),
        ({"b": [[1, -3], [2, 0]]}, None),
        ({"b": [[1, -3], [2, 0]], "b_zero_point": 0}, (-3, 2)),
        ({"b": [[1, -3], [2, 0]], "b_zero_point": 7}, (-10, 0)),
        ({"b": [[-128, 127], [0, 0]], "b_zero_point": 127}, (-255, 0)),
        ({"b": [[1, -3], [2, 0]], "b_zero_point": [1, -3]}, (0, 3)),
    ],
)
def test_facts_of_a_matrix(constants: dict[str, Any], weights: tuple[int, int] | None) -> None:
    operator = product(rows=1, depth=2, columns=2, b_zero_point="per_column")
    arrays = {name: np.array(value, np.int8) for name, value in constants.items()}
    assert facts_of(operator, arrays) == Facts(weights)


def test_facts_of_a_filter_with_zero_points_per_channel() -> None:
    operator = qc.QuantizedLinearConvolution(
        qc.Tensor((1, 1, 1, 1), "uint8"), qc.Tensor((2, 1, 1, 1), "uint8"), filter_zero_point="per_channel"
    )
    filters = np.array([200, 10], np.uint8).reshape(2, 1, 1, 1)
    assert facts_of(operator, {"filter": filters, "filter_zero_point": np.array([190, 50], np.uint8)}) == Facts(
        (-40, 10)
    )
    assert facts_of(operator, {"filter": filters}) == NOTHING
    assert facts_of(qc.QuantizeLinear(qc.Tensor((4,), "float32")), {}) == NOTHING


def record_of(rule: str, operator: Operator, constants: tuple[str, ...], **knobs: int) -> records.Record:
    version = load_rule(rule).version
    return records.Record(
        kernel=operator.name, constants=constants, target=TARGET, rule=rule, rule_version=version,
        knobs=knobs, status="ok", threads=1, versions={"qcompile": "0", "apache-tvm": "0"}, cpu="any",
        date="2026-01-01T00:00:00Z", seconds=1e-5 if rule == "cpu_widen16" else 2e-5, spread=0.01, calls=9,
    )  # fmt: skip


def test_records_of_other_rules_do_not_stand_before_what_the_weights_allow() -> None:
    operator, narrow = product(), Facts((-64, 64))
    names = ("b", "b_zero_point")
    of_pairs, of_bytes = record_of("cpu_widen16", operator, names), record_of("cpu_bytes", operator, names)
    file = records.RecordFile("my.json", "records", (of_pairs,))
    choice = find(operator, AVX2, names, [file], narrow)
    assert choice.rule == "cpu_bytes"
    assert any("cpu_bytes comes first, which these constants allow" in reason for reason in choice.records_refused)
    assert find(operator, AVX2, names, [file]).record == of_pairs
    # where both were measured, the faster one is followed
    both = records.RecordFile("both.json", "records", (of_pairs, of_bytes))
    assert find(operator, AVX2, names, [both], narrow).record == of_pairs


@needs_avx2
def test_tuning_knows_what_the_weights_allow(tmp_path: Path) -> None:
    operator = product(rows=2, depth=8, columns=8)
    values = values_of(operator, "alternating", None)
    constants = {name: value for name, value in values.items() if name != "a"}
    path = tmp_path / "tuned.json"
    (kernel,) = qc.tune(operator, TARGET, constants, records=path, trials=3).kernels
    assert kernel.default is not None
    assert kernel.default.rule == "cpu_bytes"
    assert kernel.statuses == {"ok": 3}
    assert qc.compile(operator, TARGET, constants, records=path).variant.knobs_source == "records"
    (kernel,) = qc.tune(operator, TARGET, "parameters", records=tmp_path / "any.json", trials=2).kernels
    assert kernel.default is not None
    assert kernel.default.rule == "cpu_widen16"


def test_drawn_weights_keep_to_the_facts() -> None:
    for operator in OPERATORS:
        values = drawn_values(operator, 1, 0, Facts((-5, 5)))
        constants = {name: value for name, value in values.items() if name != operator.tensors[0].name}
        low, high = facts_of(operator, constants).weights or (-9, 9)
        assert -5 <= low <= high <= 5


def test_the_weakest_facts() -> None:
    assert Facts((-5, 5)).weakest(Facts((-9, 9))) == Facts((-9, 9))
    assert Facts((-5, 5)).weakest(NOTHING) == NOTHING
