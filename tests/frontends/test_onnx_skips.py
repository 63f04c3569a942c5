"""Nodes that are not taken over: each says why, and the model still runs."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from qcompile.frontends.onnx import import_model

from .support import floats, make_model, number, reasons, scales, value_info
from .test_onnx_qoperator import convolution_model, gemm_model, product_model


def _elementwise(op_type: str, dtype: str, parameters: dict[str, Any], opset: int = 21, **attributes: Any) -> Any:
    shape = (2, 4)
    given = ("float32", shape) if op_type == "QuantizeLinear" else (dtype, shape)
    result = (dtype, shape) if op_type == "QuantizeLinear" else ("float32", shape)
    node = helper.make_node(op_type, ["x", *parameters], ["y"], name="node", **attributes)
    return make_model([node], {"x": given}, {"y": result}, parameters, opset=opset, check=False)


def _four_bits(op_type: str) -> Any:
    model = _elementwise(op_type, "int4", {"s": scales()}, output_dtype=TensorProto.INT4)
    if op_type == "DequantizeLinear":
        del model.graph.node[0].attribute[:]
    return model


def _three_dimensional() -> Any:
    return convolution_model((1, 4, 5, 5, 5), (6, 4, 3, 3, 3))


def _run_time_zero_point() -> Any:
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], name="node")
    inputs = {"x": ("int32", (3,)), "z": ("int32", ())}
    return make_model([node], inputs, {"y": ("float32", (3,))}, {"s": scales()})


def _vector_product() -> Any:
    model = product_model((1, 7), (7, 4))
    del model.graph.input[0].type.tensor_type.shape.dim[0]
    del model.graph.output[0].type.tensor_type.shape.dim[0]
    return model


def _data_dependent() -> Any:
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"], name="nonzero"),
        helper.make_node("Cast", ["found"], ["float"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("QuantizeLinear", ["float", "s"], ["y"], name="node"),
    ]
    return make_model(nodes, {"x": ("float32", (3,))}, {"y": ("uint8", (1, None))}, {"s": scales()})


def _custom_input() -> Any:
    nodes = [
        helper.make_node("Mystery", ["x"], ["m"], name="mystery", domain="somewhere"),
        helper.make_node("QuantizeLinear", ["m", "s"], ["y"], name="node"),
    ]
    return make_model(
        nodes, {"x": ("float32", (3,))}, {"y": ("uint8", (3,))}, {"s": scales()}, domains={"somewhere": 1}
    )


#: case -> (model, name of the node, part of the reason).
SKIPPED: dict[str, tuple[Any, str, str]] = {
    "3-D convolution": (_three_dimensional, "conv", "a convolution over 3 spatial axes; accepted: 1 and 2"),
    "float QGemm": (lambda: gemm_model(output="float32"), "gemm", "no y_scale, so its output is float32"),
    "QGemm transA": (lambda: gemm_model(transA=1), "gemm", "transA is 1; accepted: 0"),
    "QGemm alpha of another type": (
        lambda: gemm_model(alpha="a"),
        "gemm",
        "the attribute alpha is a bytes, not a float",
    ),
    "QGemm run-time transB": (
        lambda: gemm_model(transposed=True, inputs={"b": ("uint8", (4, 7))}),
        "gemm",
        "transB is 1 and b is not constant",
    ),
    "QGemm run-time alpha": (
        lambda: gemm_model(alpha=0.5, inputs={"a_scale": ("float32", ())}),
        "gemm",
        "alpha is 0.5 and a_scale is not a constant",
    ),
    "QGemm bias per row": (
        lambda: gemm_model(bias=(5, 1)),
        "gemm",
        "C has the shape (5, 1); accepted: (4,) or (1, 4)",
    ),
    "a vector": (_vector_product, "product", "a has the shape (7,); accepted: 2 to 4 axes"),
    "parameters per batch": (
        lambda: product_model((2, 5, 7), (2, 7, 4), a_scale=scales(2).reshape(2, 1, 1)),
        "product",
        "'a_scale' (a_scale) has the shape (2, 1, 1); accepted: one element or (5,)",
    ),
    "no axes": (lambda: product_model((1, 1, 1, 5, 7), (7, 4)), "product", "a has the wrong number of axes."),
    "bad scale": (
        lambda: product_model((5, 7), (7, 4), y_scale=number(-1)),
        "product",
        "output_scale has a value that is no scale. (given: -1.0)",
    ),
    "bad multiplier": (
        lambda: product_model((5, 7), (7, 4), a_scale=number(1e30), b_scale=number(1e30)),
        "product",
        "is not a usable float32 number",
    ),
    "channels that do not fit": (
        lambda: convolution_model((1, 5, 9, 9)),
        "conv",
        "the filter's input channels do not fit. (given: 4 in uint8",
    ),
    "blocked": (
        lambda: _elementwise("QuantizeLinear", "uint8", {"s": scales(4).reshape(2, 2)}, block_size=2),
        "node",
        "block_size is 2: blocked quantization is not supported",
    ),
    "blocked dequantize": (
        lambda: _elementwise("DequantizeLinear", "uint8", {"s": scales(4).reshape(2, 2)}, block_size=2),
        "node",
        "block_size is 2",
    ),
    "saturate": (lambda: _elementwise("QuantizeLinear", "uint8", {"s": scales()}, saturate=0), "node", "saturate is 0"),
    "4 bits": (lambda: _four_bits("QuantizeLinear"), "node", "output_dtype is int4; accepted: int8, uint8, int16"),
    "4 bits in": (lambda: _four_bits("DequantizeLinear"), "node", "'x' is int4; accepted: int8, uint8, int16, uint16"),
    "float8": (
        lambda: _elementwise("QuantizeLinear", "float8e4m3fn", {"s": scales()}, output_dtype=TensorProto.FLOAT8E4M3FN),
        "node",
        "output_dtype is float8e4m3fn",
    ),
    "precision": (
        lambda: _elementwise("QuantizeLinear", "uint8", {"s": scales()}, 23, precision=TensorProto.BFLOAT16),
        "node",
        "precision is bfloat16; accepted: float16, float32",
    ),
    "another output than the scale": (
        lambda: _elementwise("DequantizeLinear", "uint8", {"s": scales()}, 23, output_dtype=TensorProto.FLOAT16),
        "node",
        "output_dtype is float16; accepted: the scale's, float32",
    ),
    "int32 zero point": (
        lambda: _elementwise("DequantizeLinear", "int32", {"s": scales(), "z": number(1, "int32")}),
        "node",
        "the zero point 'z' of int32 codes is not constantly 0",
    ),
    "int32 run-time zero point": (_run_time_zero_point, "node", "the zero point 'z' of int32 codes is not"),
    "data-dependent shape": (_data_dependent, "node", "the shape of 'float' is not known before run time"),
    "behind a custom operator": (_custom_input, "node", "'m' is of unknown type; accepted: float16, float32"),
    "the custom operator": (_custom_input, "mystery", "not one of qcompile's operators"),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_skipped(case: str) -> None:
    build, name, reason = SKIPPED[case]
    imported = import_model(build())
    assert reason in reasons(imported)[name]
    assert name not in [node.name for node in imported.nodes]


def test_per_axis_needs_opset_13_and_an_axis_inside() -> None:
    for opset, parameters, reason in (
        (10, {"s": scales(4)}, "parameters per axis exist from opset 13"),
        (13, {"s": scales(3)}, "'s' (scale) has the shape (3,); accepted: one element or (4,)"),
    ):
        model = _elementwise("QuantizeLinear", "uint8", parameters, opset)
        assert reason in reasons(import_model(model))["node"]
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], name="node")
    model = make_model([node], {"x": ("uint8", (4,))}, {"y": ("float32", (4,))}, {"s": scales(4)})
    assert reasons(import_model(model))["node"] == "axis is 1, but the input has 1 axes"


def test_every_node_is_taken_over_or_skipped_with_a_reason() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["f"], name="float"),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("QuantizeLinear", ["g", "s"], ["q"], name="quantize"),
        helper.make_node("QLinearSigmoid", ["q", "s", "", "s", ""], ["y"], name="sigmoid", domain="com.microsoft"),
    ]
    constants = {"w": floats(3, 2, 1, 1), "s": scales()}
    model = make_model(nodes, {"x": ("float32", (1, 2, 4, 4))}, {"y": ("uint8", (1, 3, 4, 4))}, constants)
    imported = import_model(model)
    assert [node.name for node in imported.nodes] == ["quantize"]
    assert [(node.name, node.op_type, node.reason) for node in imported.skipped] == [
        ("float", "Conv", "its input 'x' does not come from DequantizeLinear"),
        ("Relu_1", "Relu", "not one of qcompile's operators"),
        ("sigmoid", "com.microsoft::QLinearSigmoid", "not one of qcompile's operators"),
    ]


def test_functions_of_the_model_are_not_searched() -> None:
    inner = helper.make_node("QuantizeLinear", ["a", "s"], ["b"])
    function = helper.make_function("mine", "Quantize", ["a", "s"], ["b"], [inner], [helper.make_opsetid("", 13)])
    nodes = [
        helper.make_node("Quantize", ["x", "s"], ["q"], name="call", domain="mine"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], name="dequantize"),
    ]
    model = make_model(
        nodes,
        {"x": ("float32", (4,))},
        {"y": ("float32", (4,))},
        {"s": scales()},
        domains={"mine": 1},
        check=False,
    )
    model.functions.append(function)
    imported = import_model(model)
    assert reasons(imported) == {"call": "it is a function of the model; what is inside is not searched"}
    assert [node.name for node in imported.nodes] == ["dequantize"]


def test_kernel_shape_must_be_the_filters() -> None:
    """Shape inference trusts the attribute, so the output's shape would be another one."""
    model = convolution_model(kernel_shape=[2, 2])
    assert reasons(import_model(model))["conv"] == "kernel_shape (2, 2) contradicts the filter (6, 4, 3, 3)"


def test_the_model_declares_what_inference_cannot_know() -> None:
    nodes = [
        helper.make_node("Mystery", ["x"], ["m"], name="mystery", domain="somewhere"),
        helper.make_node("QuantizeLinear", ["m", "s"], ["y"], name="node"),
    ]
    model = make_model(
        nodes,
        {"x": ("float32", (3,))},
        {"y": ("uint8", (3,))},
        {"s": scales()},
        domains={"somewhere": 1},
        value_info=[value_info("m", "float32", (3,))],
    )
    assert [node.name for node in import_model(model).nodes] == ["node"]
