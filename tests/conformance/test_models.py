"""Whole models, trained and quantized by others: every quantized node compiles, verifies and runs."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.frontends.onnx import ImportedModel, import_model
from qcompile.frontends.requests import requests_of_nodes
from qcompile.pipeline.compile import compile_requests

from ..conftest import RUNNABLE_TARGETS
from .cases import DATA

CASES = {case["id"]: case for case in json.loads((DATA / "real_models.json").read_text())["cases"]}
QUANTIZED = ("QLinearConv", "com.microsoft::QGemm", "QLinearMatMul", "ConvInteger", "MatMulInteger")


@cache
def arrays() -> dict[str, Any]:
    with np.load(DATA / "real_models.npz") as stored:
        return {name: stored[name] for name in stored.files}


@cache
def imported(name: str) -> ImportedModel:
    shapes = {tensor: entry["shape"] for tensor, entry in CASES[name]["inputs"].items()}
    return import_model(arrays()[CASES[name]["model"]].tobytes(), shapes)


@cache
def compiled(name: str) -> qc.Bundle:
    return compile_requests(requests_of_nodes(imported(name).nodes), RUNNABLE_TARGETS)


@pytest.mark.parametrize("name", CASES)
def test_every_quantized_node_is_taken_over(name: str) -> None:
    model = imported(name)
    taken = {node for group in model.nodes for node in group.nodes}
    for node in model.skipped:
        assert node.op_type.split("::")[-1] not in {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QGemm"}, node
        assert node.name not in taken
    counts = Counter(type(node.operator).__name__ for node in model.nodes)
    operators = CASES[name]["ops"]
    convolutions = operators.get("QLinearConv", 0) or operators.get("Conv", 0)
    products = operators.get("com.microsoft::QGemm", 0) or operators.get("Gemm", 0)
    assert counts["QuantizedLinearConvolution"] == convolutions
    assert counts["QuantizedLinearMatrixMultiply"] == products


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_exact(name: str) -> None:
    bundle = compiled(name)
    assert sum(1 + len(kernel.aliases) for kernel in bundle) == len(imported(name).nodes)
    for result in qc.verify(bundle, rounds=1):
        assert result.is_exact, (result.name, result.detail)


@pytest.mark.parametrize("name", CASES)
def test_the_model_gives_its_stored_outputs(name: str) -> None:
    case = CASES[name]
    feeds = {tensor: arrays()[entry["key"]] for tensor, entry in case["inputs"].items()}
    result = qc.run_onnx(imported(name), compiled(name), feeds)
    assert len(result.by_kernels) == len(imported(name).nodes)
    for mode, factor in (("precise", 0.0), ("literal", 3.0)):
        # `precise` runs the same integer kernels; `literal` computes the convolutions of a QDQ model in float
        tolerance = factor * case["spread"]["literal-precise"]
        for output, entry in case["outputs"][mode].items():
            expected = arrays()[entry["key"]]
            assert np.abs(result[output] - expected).max() <= tolerance + 1e-5 * np.abs(expected).max()


def test_equal_nodes_share_a_kernel() -> None:
    for name in CASES:
        bundle, model = compiled(name), imported(name)
        shared = [kernel for kernel in bundle if kernel.aliases]
        contents = {
            (kernel.operator.name, *((key, value.tobytes()) for key, value in sorted(kernel.constants.items())))
            for kernel in bundle
        }
        assert len(contents) == len(bundle)
        for kernel in shared:
            for alias in kernel.aliases:
                assert bundle[alias].name == kernel.name
        assert [kernel.name for kernel in bundle] == [node.name for node in model.nodes if node.name in bundle.names]
    assert any(kernel.aliases for name in CASES for kernel in compiled(name))


def test_run_onnx_takes_a_path_or_a_kernel(tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
    shapes = {"image": (2, 1, 8, 8)}
    bundle = qc.compile(model.read_bytes(), input_shapes=shapes)
    bundle.save(tmp_path / "digits.qcb")
    feeds = {"image": np.random.default_rng(0).random((2, 1, 8, 8), np.float32)}
    results = [
        qc.run_onnx(model, given, feeds)
        for given in (bundle, tmp_path / "digits.qcb", str(tmp_path / "digits.qcb"), bundle["conv1"])
    ]
    assert [len(result.by_kernels) for result in results] == [7, 7, 7, 1]
    assert all(np.array_equal(result["scores"], results[0]["scores"]) for result in results)
