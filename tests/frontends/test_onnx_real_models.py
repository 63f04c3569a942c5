"""Trained models, quantized by onnxruntime: everything quantized is found, and the outputs are the recorded ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcompile.frontends.onnx import import_model, run_onnx

from .support import operators, reference_bundle

DATA = Path(__file__).parents[1] / "data" / "conformance"
CASES: dict[str, Any] = {
    case["id"]: case for case in json.loads((DATA / "real_models.json").read_text(encoding="utf-8"))["cases"]
}
EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"

#: Products, and the nodes around them that stay kernels of their own: a QDQ group takes in one QuantizeLinear, and
#: those DequantizeLinear that serve groups only.
KERNELS = {
    "ocr_cls_qdq_u8s8_pc": {
        "QuantizedLinearConvolution": 53,
        "QuantizedLinearMatrixMultiply": 1,
        "QuantizeLinear": 145 - 54,
        "DequantizeLinear": 99,
    },
    "ocr_cls_qop_u8u8": {
        "QuantizedLinearConvolution": 53,
        "QuantizedLinearMatrixMultiply": 1,
        "QuantizeLinear": 36,
        "DequantizeLinear": 28,
    },
    "speech_embedding_qdq_s8s8_pc": {
        "QuantizedLinearConvolution": 20,
        "QuantizeLinear": 60 - 20,
        "DequantizeLinear": 40,
    },
    "speech_embedding_qop_u8u8": {
        "QuantizedLinearConvolution": 20,
        "QuantizeLinear": 20,
        "DequantizeLinear": 20,
    },
}
#: Products in the manifest's counts of ONNX nodes.
PRODUCTS = ("Conv", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul", "com.microsoft::QGemm")


@pytest.fixture(name="arrays", scope="module")
def _arrays() -> Any:
    with np.load(DATA / "real_models.npz") as arrays:
        return dict(arrays)


def test_all_cases_are_here() -> None:
    assert set(KERNELS) == set(CASES)


@pytest.mark.parametrize("case", KERNELS)
def test_every_quantized_node_is_found(case: str, arrays: Any) -> None:
    imported = import_model(arrays[CASES[case]["model"]].tobytes())
    counts = CASES[case]["ops"]
    kernels = Counter(operators(imported))
    assert kernels == KERNELS[case]
    products = sum(count for name, count in kernels.items() if name.startswith("QuantizedLinear"))
    assert products == sum(counts.get(name, 0) for name in PRODUCTS)
    taken_over = {name for node in imported.nodes for name in node.nodes}
    skipped = Counter(node.op_type for node in imported.skipped)
    quantized = {*PRODUCTS, "QuantizeLinear", "DequantizeLinear"}
    assert skipped == {name: count for name, count in counts.items() if name not in quantized}
    assert len(taken_over) + len(imported.skipped) == sum(counts.values())


@pytest.mark.parametrize("case", KERNELS)
def test_outputs_are_the_recorded_ones(case: str, arrays: Any, record_property: Any) -> None:
    """Quantized operators give exactly the recorded bits; a QDQ group is fused, as in ORT's precise mode."""
    description = CASES[case]
    imported = import_model(arrays[description["model"]].tobytes())
    feeds = {name: arrays[of["key"]] for name, of in description["inputs"].items()}
    result = run_onnx(imported, reference_bundle(imported), feeds)
    assert len(result.by_kernels) == len(imported.nodes)
    assert len(result.by_others) == len(imported.skipped)
    for name in result:
        recorded = {mode: arrays[of[name]["key"]] for mode, of in description["outputs"].items()}
        differences = {mode: float(np.abs(result[name] - recorded[mode]).max()) for mode in recorded}
        record_property(f"{case} {name}", differences)
        print(case, name, differences)
        rounding = 1e-5 * float(np.abs(recorded["literal"]).max())  # of the float operators between
        assert differences["literal"] <= 3 * description["spread"]["literal-precise"] + rounding


@pytest.mark.parametrize(("name", "kernels"), [("digits_int8.onnx", 7), ("digits_qdq_int8.onnx", 7)])
def test_the_example(name: str, kernels: int) -> None:
    with np.load(EXAMPLES / "digits_test.npz") as test:
        images = (test["images"][:50, None] / np.float32(16)).astype(np.float32)
        labels = test["labels"][:50]
    imported = import_model(EXAMPLES / name, {"image": images.shape})
    print(name, Counter(operators(imported)), imported.skipped)
    ours = run_onnx(imported, reference_bundle(imported), {"image": images})
    theirs = run_onnx(imported, {}, {"image": images})
    assert len(imported.nodes) == kernels
    assert all(node.op_type in ("MaxPool", "GlobalAveragePool", "Flatten", "Reshape") for node in imported.skipped)
    assert np.mean(ours["scores"].argmax(axis=1) == labels) > 0.9
    # full-range weights: onnxruntime may saturate on CPUs without VNNI, so only the answers are compared
    assert np.mean(ours["scores"].argmax(axis=1) == theirs["scores"].argmax(axis=1)) > 0.9
