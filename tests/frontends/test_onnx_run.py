"""Running a whole model: who runs what, and what is refused."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from qcompile.errors import InvalidTensorError, KernelError, ModelError
from qcompile.frontends.onnx import import_model, run_onnx
from qcompile.frontends.onnx.importer import import_proto

from .support import codes, floats, make_model, number, reference_bundle, scales, value_info
from .test_onnx_model import dynamic_model
from .test_onnx_qoperator import product_model


def chain() -> Any:
    """Relu, quantize, sigmoid of codes, dequantize, Neg; beside it a node that no output needs."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Neg", ["r"], ["unused"], name="unused"),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"], name="quantize"),
        helper.make_node("Relu", ["x"], ["r2"], name="relu2"),
        helper.make_node("QLinearSigmoid", ["q", "s", "z", "s", "z"], ["p"], name="sigmoid", domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["d"], name="dequantize"),
        helper.make_node("Sub", ["d", "r2"], ["y"], name="sub"),
    ]
    constants = {"s": number(0.02), "z": number(10, "uint8")}
    return make_model(nodes, {"x": ("float32", (2, 3))}, {"y": ("float32", (2, 3))}, constants)


def test_who_runs_what() -> None:
    imported = import_model(chain())
    x = floats(2, 3)
    result = run_onnx(imported, reference_bundle(imported), {"x": x})
    assert result.by_kernels == ("quantize", "dequantize")
    assert result.by_others == dict.fromkeys(["relu", "relu2", "sigmoid", "sub"], "onnxruntime")
    assert list(result) == ["y"]
    assert len(result) == 1
    assert repr(result) == "RunResult(y; 2 kernels, 4 other nodes)"
    everything = run_onnx(imported, {}, {"x": x})
    np.testing.assert_array_equal(result["y"], everything["y"])
    assert set(everything.by_others) == {"relu", "relu2", "quantize", "sigmoid", "dequantize", "sub"}


def test_kernels_may_return_named_tuples() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["codes", "scale", "zero_point"], name="dynamic")
    outputs = {"zero_point": ("uint8", ()), "scale": ("float32", ())}
    imported = import_model(make_model([node], {"x": ("float32", (4,))}, outputs))
    reference = reference_bundle(imported)["dynamic"]
    results = namedtuple("results", ["output", "scale", "zero_point"])

    class Kernel:
        operator = imported.nodes[0].operator
        constants = imported.nodes[0].constants

        def __call__(self, **tensors: Any) -> Any:
            return results(*reference(**tensors))

    x = floats(4)
    ours, theirs = run_onnx(imported, {"dynamic": Kernel()}, {"x": x}), run_onnx(imported, {}, {"x": x})
    assert ours["scale"] == theirs["scale"]
    assert ours["zero_point"] == theirs["zero_point"]
    assert list(ours) == ["zero_point", "scale"]


def test_outputs_that_are_inputs_or_initializers() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["q"], name="quantize")
    outputs = {"x": ("float32", (3,)), "s": ("float32", ()), "q": ("uint8", (3,))}
    imported = import_model(make_model([node], {"x": ("float32", (3,))}, outputs, {"s": number(0.5)}))
    x = floats(3)
    result = run_onnx(imported, reference_bundle(imported), {"x": x})
    assert result["s"] == np.float32(0.5)
    np.testing.assert_array_equal(result["x"], x)


def test_a_kernel_whose_later_inputs_come_from_a_kernel() -> None:
    """The output's scale is computed after the group's main node."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["xf"], name="dx"),
        helper.make_node("DequantizeLinear", ["w", "s"], ["wf"], name="dw"),
        helper.make_node("MatMul", ["xf", "wf"], ["f"], name="main"),
        helper.make_node("DynamicQuantizeLinear", ["other"], ["codes", "scale", "zero"], name="dynamic"),
        helper.make_node("Abs", ["scale"], ["scale2"], name="abs"),
        helper.make_node("QuantizeLinear", ["f", "scale2", "zero"], ["y"], name="qy"),
    ]
    inputs = {"x": ("uint8", (2, 3)), "other": ("float32", (4,))}
    model = make_model(nodes, inputs, {"y": ("uint8", (2, 5))}, {"s": number(0.1), "w": codes((3, 5))})
    imported = import_model(model)
    feeds = {"x": codes((2, 3)), "other": floats(4) * 100}
    result = run_onnx(imported, reference_bundle(imported), feeds)
    assert result.by_kernels == ("dynamic", "main")
    assert result.by_others == {"abs": "onnxruntime"}
    np.testing.assert_array_equal(result["y"], run_onnx(imported, {}, feeds)["y"])


def test_feeds_give_open_sizes() -> None:
    model = dynamic_model()
    feeds = {"x": floats(2, 3, 4), "other": floats(2, 2)}
    bundle = reference_bundle(import_model(model, {"x": (2, 3, 4)}))
    result = run_onnx(model, bundle, feeds)
    assert result.by_kernels == ("quantize", "second")
    np.testing.assert_array_equal(result["q"], run_onnx(model, {}, feeds, input_shapes={"x": (2, 3, 4)})["q"])
    with pytest.raises(ModelError, match="compiled from another model, or for other shapes: kernel 'quantize'"):
        run_onnx(model, bundle, {"x": floats(1, 3, 4), "other": floats(1, 2)})


def test_a_bundle_of_another_model() -> None:
    bundle = reference_bundle(import_model(product_model((5, 7), (7, 4))))
    with pytest.raises(ModelError, match="compiled from another model"):
        run_onnx(product_model((5, 7), (7, 3)), bundle, {"a": codes((5, 7))})


@pytest.mark.parametrize(
    ("feeds", "problem"),
    [
        ({}, "The input 'x' is missing"),
        ({"x": np.zeros((2, 3), np.float32), "z": 1}, "The model has no input 'z'"),
        ({"x": np.zeros((2, 4), np.float32)}, "The input 'x' has the wrong shape"),
        ({"x": np.zeros(6, np.float32)}, "The input 'x' has the wrong shape"),
        ({"x": np.zeros((2, 3))}, "The input 'x' has the wrong dtype"),
        ({"x": "text"}, "The input 'x' has the wrong dtype"),
    ],
)
def test_feeds_that_do_not_fit(feeds: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidTensorError, match=problem):
        run_onnx(chain(), {}, feeds)


def test_a_kernel_that_returns_something_else() -> None:
    imported = import_model(chain())
    bundle: dict[str, Any] = dict(reference_bundle(imported))

    class Wrong:
        operator = imported.nodes[0].operator
        constants = imported.nodes[0].constants

        def __call__(self, **tensors: Any) -> Any:
            return np.zeros((3, 2), np.uint8)

    bundle["quantize"] = Wrong()
    with pytest.raises(KernelError, match="'quantize' returned another tensor"):
        run_onnx(imported, bundle, {"x": floats(2, 3)})


def test_an_operator_that_no_engine_knows() -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], name="mystery", domain="somewhere")
    model = make_model([node], {"x": ("float32", (3,))}, {"y": ("float32", (3,))}, domains={"somewhere": 1})
    with pytest.raises(ModelError, match=r"onnxruntime cannot run the other nodes of the model \(Mystery\)"):
        run_onnx(model, {}, {"x": floats(3)})


def test_sequences_stay_inside_one_engine() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"], name="pair"),
        helper.make_node("ConcatFromSequence", ["pair"], ["both"], name="both", axis=0),
        helper.make_node("QuantizeLinear", ["both", "s"], ["q"], name="quantize"),
    ]
    model = make_model(nodes, {"x": ("float32", (3,))}, {"q": ("uint8", (6,))}, {"s": number(0.1)})
    imported = import_model(model)
    result = run_onnx(imported, reference_bundle(imported), {"x": floats(3)})
    assert result["q"].shape == (6,)
    assert len(result.by_others) + len(result.by_kernels) == 3


def test_text_inputs() -> None:
    node = helper.make_node("Identity", ["t"], ["u"], name="identity")
    model = make_model([], {}, {}, check=False)
    model.graph.node.append(node)
    model.graph.input.append(helper.make_tensor_value_info("t", TensorProto.STRING, (2,)))
    model.graph.output.append(helper.make_tensor_value_info("u", TensorProto.STRING, (2,)))
    assert run_onnx(model, {}, {"t": np.array(["a", "b"])})["u"].tolist() == ["a", "b"]


def test_loops_see_values_of_the_graph_around_them() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "q_float"], ["sum_out"]),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "body",
        [value_info("i", "int64", ()), value_info("go_in", "bool", ()), value_info("sum_in", "float32", (3,))],
        [value_info("go_out", "bool", ()), value_info("sum_out", "float32", (3,))],
    )
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["q_float"], name="dequantize"),
        helper.make_node("Loop", ["count", "", "zero"], ["y"], name="loop", body=body),
    ]
    constants = {"s": number(0.1), "count": np.array(3, np.int64), "zero": np.zeros(3, np.float32)}
    imported = import_model(make_model(nodes, {"x": ("float32", (3,))}, {"y": ("float32", (3,))}, constants))
    x = floats(3)
    result = run_onnx(imported, reference_bundle(imported), {"x": x})
    assert result.by_kernels == ("quantize", "dequantize")
    np.testing.assert_array_equal(result["y"], run_onnx(imported, {}, {"x": x})["y"])


def test_without_onnxruntime_the_reference_evaluator_runs_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("QuantizeLinear", ["r", "s"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], name="dequantize"),
    ]
    model = make_model(nodes, {"x": ("float32", (2, 3))}, {"y": ("float32", (2, 3))}, {"s": scales()})
    imported = import_model(model)
    feeds = {"x": floats(2, 3)}
    expected = run_onnx(imported, {}, feeds)["y"]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = run_onnx(imported, reference_bundle(imported), feeds)
    assert result.by_others == {"relu": "onnx reference"}
    np.testing.assert_array_equal(result["y"], expected)
    with pytest.raises(ModelError, match="install onnxruntime"):
        run_onnx(chain(), {}, feeds)


def test_import_proto_is_import_model_without_loading() -> None:
    model = chain()
    assert import_proto(model).nodes == import_model(model).nodes


def test_a_bundle_of_other_weights_is_refused() -> None:
    imported = import_model(chain())
    bundle: dict[str, Any] = dict(reference_bundle(imported))
    kernel = bundle["quantize"]
    kernel.constants = {**kernel.constants, "scale": kernel.constants["scale"] * 2}
    with pytest.raises(ModelError, match="model with other weights: kernel 'quantize'"):
        run_onnx(imported, bundle, {"x": floats(2, 3)})


def test_a_bundle_with_none_of_the_kernels_is_refused() -> None:
    imported = import_model(chain())
    other = {"other": reference_bundle(imported)["quantize"]}
    with pytest.raises(ModelError, match=r"none of this model's kernels[\s\S]*given: *other"):
        run_onnx(imported, other, {"x": floats(2, 3)})
    assert not run_onnx(imported, {}, {"x": floats(2, 3)}).by_kernels
