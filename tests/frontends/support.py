"""Small ONNX models, and a bundle whose kernels are the NumPy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qcompile.frontends.onnx import ImportedModel, QuantizedNode, import_model, run_onnx
from qcompile.reference import evaluate

RANDOM = np.random.default_rng(7)


class ReferenceKernel:
    """What a compiled kernel would return, by the reference."""

    def __init__(self, node: QuantizedNode):
        self.node = node
        self.operator = node.operator
        self.constants = node.constants

    def __call__(self, **tensors: Any) -> Any:
        assert set(tensors) == set(self.node.inputs)
        results = tuple(evaluate(self.operator, {**self.node.constants, **tensors}).values())
        return results if len(results) > 1 else results[0]


def reference_bundle(imported: ImportedModel) -> dict[str, ReferenceKernel]:
    return {node.name: ReferenceKernel(node) for node in imported.nodes}


def make_model(
    nodes: list[Any],
    inputs: dict[str, tuple[str, tuple[Any, ...]]],
    outputs: dict[str, tuple[str, tuple[Any, ...]]],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 13,
    domains: dict[str, int] | None = None,
    check: bool = True,
    **graph_fields: Any,
) -> Any:
    """A model; types are (dtype, shape)."""
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip(f"this onnx does not know opset {opset}")
    graph = helper.make_graph(
        nodes,
        "test",
        [value_info(name, *of) for name, of in inputs.items()],
        [value_info(name, *of) for name, of in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
        **graph_fields,
    )
    imports = {"": opset, "com.microsoft": 1, **(domains or {})}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*item) for item in imports.items()])
    model.ir_version = 8 if opset < 21 else 10
    if check:
        onnx.checker.check_model(model)
    return model


def value_info(name: str, dtype: str, shape: tuple[Any, ...]) -> Any:
    element_type = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bool": TensorProto.BOOL}.get(dtype)
    return helper.make_tensor_value_info(name, element_type or getattr(TensorProto, dtype.upper()), shape)


def codes(shape: tuple[int, ...], dtype: str = "uint8", limit: int | None = None) -> Any:
    """Random codes over the whole range, or within +-limit of the middle."""
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if limit is None else (max(info.min, -limit), min(info.max, limit))
    return RANDOM.integers(low, high, shape, dtype=dtype, endpoint=True)


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def scales(count: int | None = None) -> Any:
    return RANDOM.uniform(0.005, 0.02, () if count is None else (count,)).astype(np.float32)


def number(value: float, dtype: str = "float32") -> Any:
    return np.array(value, dtype)


def operators(imported: ImportedModel) -> list[str]:
    return [type(node.operator).__name__ for node in imported.nodes]


def reasons(imported: ImportedModel) -> dict[str, str]:
    return {node.name: node.reason for node in imported.skipped}


def check_against_other_engine(model: Any, feeds: dict[str, Any], kernels: int | None = None) -> ImportedModel:
    """The reference-backed kernels must give exactly what onnxruntime gives for the model as it is written."""
    imported = import_model(model)
    kernels = len(imported.nodes) if kernels is None else kernels
    ours = run_onnx(imported, reference_bundle(imported), feeds)
    theirs = run_onnx(imported, {}, feeds)
    assert len(ours.by_kernels) == kernels == len(imported.nodes)
    assert not theirs.by_kernels
    assert set(theirs.by_others.values()) == {"onnxruntime"}
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name])
        assert ours[name].dtype == theirs[name].dtype
    return imported
