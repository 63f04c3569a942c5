"""The rule of vpdpbusd: exact for all weights and zero points, with and without the sums of the data."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends import targets
from qcompile.backends.cpu import features as cpu_features
from qcompile.constants.facts import NOTHING, Facts, facts_of
from qcompile.frontends.requests import Request
from qcompile.pipeline.codes import Job
from qcompile.planning import find
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values
from qcompile.spec import Operator
from qcompile.spec.values import canonical_values

from ..backends.cpu.emulation.support import needs_emulator
from ..conformance.cases import SUITES, Case, cases
from ..conftest import TESTED_TARGETS
from ..support import assert_equal, constant_names, split_values, stage_texts
from .test_bytes_rule import convolution, product, weights_name

TARGETS = [entry.name for entry in targets.load_all() if entry.facts.instruction("uint8", "int8")]
TYPES = ("us", "ss", "uu", "su")

pytestmark = pytest.mark.filterwarnings("ignore::qcompile.errors.AccumulatorOverflowWarning")
dot_product_targets = pytest.mark.parametrize(
    "compiled_for",
    [
        pytest.param(name, marks=pytest.mark.skipif(name not in TESTED_TARGETS, reason=f"{name} cannot run here"))
        for name in TARGETS
    ],
)

OPERATORS = [
    *(product(types=types) for types in TYPES),
    *(product(rows=rows, depth=32, columns=50, types="uu", b_zero_point="per_column") for rows in (1, 3, 7)),
    product(rows=9, depth=6, types="su", a_scale="per_row", a_zero_point="per_row", b_zero_point="per_column"),
    product(rows=4, depth=64, columns=48, types="us", b_zero_point=None, bias=True),
    qc.MatrixMultiplyInteger(qc.Tensor((2, 1, 4, 30), "uint8"), qc.Tensor((3, 30, 16), "uint8")),
    qc.MatrixMultiplyInteger(qc.Tensor((3, 4, 7), "int8"), qc.Tensor((7, 9), "uint8"), b_zero_point="per_column"),
    qc.MatrixMultiplyInteger(
        qc.Tensor((5, 16), "uint8"), qc.Tensor((16, 40), "int8"), a_zero_point=None, b_zero_point=None
    ),
    *(convolution(layout, types) for layout in ("NHWC", "NCHW") for types in TYPES),
    convolution("NHWC", "uu", channels=3, strides=(2, 2)),
    convolution("NCHW", "su", channels=5, dilations=(1, 2)),
    convolution("NHWC", "uu", channels=8, dilations=(2, 2), filter_zero_point="per_channel"),
    # read in place: nothing is padded, and neighbours come in fours
    *(
        qc.QuantizedLinearConvolution(
            qc.Tensor((2, 7, 9, 8), "uint8", "NHWC"), qc.Tensor((24, taps, taps, 8), weights, "NHWC"), strides=strides
        )
        for weights, taps, strides in (("uint8", 1, (1, 1)), ("int8", 1, (2, 2)), ("uint8", 3, (2, 1)))
    ),
    qc.ConvolutionInteger(qc.Tensor((1, 8, 40), "int8"), qc.Tensor((48, 4, 3), "uint8"), group_count=2),
]  # fmt: skip


def values_of(operator: Operator, weights: str, zero_point: int | None, data: int | None) -> dict[str, Any]:
    """Random values; weights at the ends of their type, and one value for all zero points of the filter and data."""
    rng = np.random.default_rng(11)
    values = dict(random_values(operator, rng))
    name = weights_name(operator)
    info = np.iinfo(values[name].dtype)
    if weights != "random":
        ends = {"least": [info.min], "largest": [info.max], "alternating": [info.min, info.max, info.max]}[weights]
        values[name] = np.resize(ends, values[name].shape).astype(values[name].dtype)
    if zero_point is not None and f"{name}_zero_point" in values:
        own = values[f"{name}_zero_point"]
        values[f"{name}_zero_point"] = np.full_like(own, np.clip(zero_point, info.min, info.max))
    if data is not None:
        first = operator.tensors[0]
        values[first.name] = np.full(first.shape, data, first.dtype)
    return values


#: weights, zero point of the weights
DRAWS = [("random", None), ("least", 255), ("largest", -128), ("alternating", 128), ("random", 0)]


@dot_product_targets
@pytest.mark.parametrize("known", ["parameters", "filter", "nothing"])
def test_exact_for_all_weights_and_zero_points(compiled_for: str, known: str) -> None:
    named, fixed = {}, {}
    draws = DRAWS if known == "parameters" else DRAWS[:2]  # code that depends on less needs fewer
    for number, operator in enumerate(OPERATORS):
        for draw, (weights, zero_point) in enumerate(draws):
            values = values_of(operator, weights, zero_point, None)
            names = {
                "parameters": [tensor.name for tensor in operator.tensors[1:]],
                "filter": [weights_name(operator)],
                "nothing": [],
            }[known]
            named[f"{number}_{draw}"] = operator
            fixed[f"{number}_{draw}"] = {name: values[name] for name in names}
    bundle = qc.compile(named, compiled_for, fixed).emulated()
    for number, operator in enumerate(OPERATORS):
        first = operator.tensors[0]
        info = np.iinfo(first.dtype)
        for draw, (weights, zero_point) in enumerate(draws):
            kernel = bundle[f"{number}_{draw}"]
            assert kernel.variant.rule == "cpu_dot_product"
            for data in (None, info.min, info.max) if known == "parameters" else (None,):
                values = values_of(operator, weights, zero_point, data)
                result = kernel(**{tensor.name: values[tensor.name] for tensor in kernel.inputs})
                assert_equal(evaluate(operator, values), result)


def stage_names(operator: Operator, target: str, known: set[str], facts: Facts) -> set[str]:
    text = stage_texts(operator, frozenset(known), targets.load(target), ["scheduled"], facts=facts)["scheduled"]
    return {word for word in ("row_sums", "offsets", "centred") if f"{word} = T.sblock_alloc_buffer" in text}


def test_what_the_constants_prove_is_left_out() -> None:
    operator = product(rows=8, depth=64, columns=64, types="uu")
    known = {tensor.name for tensor in operator.tensors[1:]}
    assert stage_names(operator, TARGETS[0], known, Facts((-128, 127))) == set()
    for facts in (Facts((-129, 0)), Facts((0, 128)), NOTHING):
        assert stage_names(operator, TARGETS[0], known, facts) == {"row_sums"}
    # weights of int8 without a zero point are their own codes, constant or not
    symmetric = product(rows=8, depth=64, columns=64, b_zero_point=None)
    assert stage_names(symmetric, TARGETS[0], set(), NOTHING) == {"offsets"}
    assert stage_names(product(rows=8, depth=62, types="us"), TARGETS[0], known, Facts((-9, 9))) == {"centred"}


def test_kernels_share_code_where_the_constants_prove_the_same() -> None:
    operator = product(rows=3, depth=16, columns=16, types="uu")
    values = values_of(operator, "random", 128, None)
    constants = {name: value for name, value in values.items() if name != "a"}
    other = {**constants, "b": constants["b"] // 2 + 64}
    far = {**constants, "b_zero_point": np.uint8(0)}
    target = targets.load(TARGETS[0])
    keys = []
    for own in (constants, other, far):
        request = Request("kernel", operator, canonical_values(operator, own))
        facts = facts_of(operator, request.constants)
        keys.append(Job("kernel", find(operator, target, own.keys(), facts=facts), "float32").key)
    assert keys[0] == keys[1] != keys[2]


AVX2 = frozenset(targets.load("x86_64-avx2").facts.required_features)
AVX512 = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})
#: features of a machine -> the variant that it takes, of a bundle with all
MACHINES = {
    "plain": (frozenset({"sse2"}), "x86_64"),
    "haswell": (AVX2, "x86_64-avx2"),
    "skylake-x": (AVX2 | AVX512, "x86_64-avx2"),
    "alder lake": (AVX2 | {"avxvnni"}, "x86_64-avxvnni"),
    "ice lake": (AVX2 | AVX512 | {"avx512vnni"}, "x86_64-avx512vnni"),
    "sapphire rapids": (AVX2 | AVX512 | {"avx512vnni", "avxvnni"}, "x86_64-avx512vnni"),
}


@cache
def small_bundle() -> qc.Bundle:
    names = ["x86_64-avxvnni", "x86_64", "x86_64-avx512vnni", "x86_64-avx2"]
    return qc.compile({"product": product(rows=2, depth=8, columns=8)}, names)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_best_variant_that_runs_is_taken(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features, wanted = MACHINES[machine]
    monkeypatch.setattr(cpu_features, "architecture", lambda: "x86_64")
    monkeypatch.setattr(cpu_features, "features", lambda: features)
    bundle = qc.Bundle(small_bundle().to_bytes())
    kernel = bundle["product"]
    assert kernel.variant.target == wanted
    assert kernel.runnable_targets[0] == wanted
    for target in set(bundle.targets) - set(kernel.runnable_targets):
        lacking = set(targets.load(target).facts.required_features) - features
        with pytest.raises(qc.IncompatibleMachineError, match=next(iter(sorted(lacking)))):
            kernel.on(target)(a=np.zeros((2, 8), np.uint8))
    assert targets.host().name == wanted


@pytest.mark.parametrize("compiled_for", TARGETS)
def test_a_cpu_without_the_instruction_is_refused_when_loading(
    compiled_for: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    path = tmp_path / "product.qcb"
    qc.compile(product(rows=2, depth=8, columns=8), compiled_for).save(path)
    monkeypatch.setattr(cpu_features, "architecture", lambda: "x86_64")
    monkeypatch.setattr(cpu_features, "features", lambda: AVX2)
    missing = [name for name in targets.load(compiled_for).facts.required_features if name not in AVX2]
    with pytest.raises(qc.IncompatibleMachineError, match=", ".join(missing)) as raised:
        qc.load(path)
    assert "qc.load(path, emulate=True)" in str(raised.value)


#: every tenth case, and at least one of each suite
SAMPLE = [case for suite in SUITES for case in cases(suite)[::10]]


@cache
def conformance_bundle(suite: str, target: str) -> qc.Bundle:
    chosen = [case for case in SAMPLE if case.suite == suite]
    constants = {case.id: split_values(case.values, constant_names(case.operator) - {"bias"})[0] for case in chosen}
    return qc.compile({case.id: case.operator for case in chosen}, target, constants).emulated(always=True)


@needs_emulator
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_the_golden_data_in_emulation(case: Case) -> None:
    """AVX-512, also where this machine has it: in emulation every access to memory is checked."""
    kernel = conformance_bundle(case.suite, "x86_64-avx512vnni")[case.id]
    assert kernel.variant.emulated_cpu == "icelake"
    constants = {*kernel.constants}
    result = kernel(**{name: value for name, value in case.values.items() if name not in constants})
    assert_equal(case.expected, result, case.path_dependent)
