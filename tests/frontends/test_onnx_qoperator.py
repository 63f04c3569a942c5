"""Quantized operators of ONNX: one node becomes one kernel, which computes what onnxruntime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.reference
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from qcompile.frontends.onnx import import_model, run_onnx
from qcompile.spec import (
    ConvolutionInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatrixMultiplyInteger,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
    Tensor,
)

from .support import check_against_other_engine, codes, floats, make_model, number, operators, reference_bundle, scales

CONVOLUTION_INPUTS = ["x", "x_scale", "x_zp", "w", "w_scale", "w_zp", "y_scale", "y_zp", "bias"]


def convolution_model(
    shape: tuple[int, ...] = (1, 4, 9, 10),
    filter_shape: tuple[int, ...] = (6, 4, 3, 3),
    dtype: str = "uint8",
    per_channel: bool = False,
    bias: bool = True,
    output: tuple[Any, ...] | None = None,
    **attributes: Any,
) -> Any:
    channels = filter_shape[0]
    constants = {
        "x_scale": scales(),
        "x_zp": codes((), dtype, 100),
        "w": codes(filter_shape, dtype),
        "w_scale": scales(channels) if per_channel else scales(),
        "w_zp": np.zeros(channels, dtype) if per_channel else codes((), dtype, 20),
        "y_scale": number(0.3),
        "y_zp": codes((), dtype),
        "bias": codes((channels,), "int32", 3000),
    }
    inputs = CONVOLUTION_INPUTS if bias else CONVOLUTION_INPUTS[:-1]
    node = helper.make_node("QLinearConv", inputs, ["y"], name="conv", **attributes)
    return make_model([node], {"x": (dtype, shape)}, {"y": (dtype, output or (None,) * len(shape))}, constants)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "int8": {"dtype": "int8"},
    "per channel": {"per_channel": True, "dtype": "int8"},
    "strides, dilations, unequal pads": {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 2, 3]},
    "groups": {"group": 2, "filter_shape": (6, 2, 3, 3), "pads": [1, 1, 1, 1]},
    "depthwise": {"group": 4, "filter_shape": (4, 1, 3, 3), "kernel_shape": [3, 3]},
    "SAME_UPPER": {"auto_pad": "SAME_UPPER", "strides": [2, 3], "filter_shape": (6, 4, 4, 2)},
    "SAME_LOWER": {"auto_pad": "SAME_LOWER", "strides": [2, 3], "filter_shape": (6, 4, 4, 2)},
    "SAME_UPPER without need": {"auto_pad": "SAME_UPPER", "strides": [3, 3], "filter_shape": (6, 4, 1, 1)},
    "VALID": {"auto_pad": "VALID", "strides": [2, 2]},
    "NOTSET": {"auto_pad": "NOTSET", "pads": [1, 0, 0, 1]},
    "1-D": {"shape": (2, 4, 17), "filter_shape": (6, 4, 5), "pads": [3, 1], "strides": [2], "dilations": [2]},
    "1-D SAME_LOWER": {"shape": (2, 4, 17), "filter_shape": (6, 4, 4), "auto_pad": "SAME_LOWER", "strides": [2]},
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_qlinear_convolution(case: str) -> None:
    model = convolution_model(**CONVOLUTIONS[case])
    shape = CONVOLUTIONS[case].get("shape", (1, 4, 9, 10))
    imported = check_against_other_engine(model, {"x": codes(shape, CONVOLUTIONS[case].get("dtype", "uint8"))}, 1)
    (node,) = imported.nodes
    assert isinstance(node.operator, QuantizedLinearConvolution)
    assert node.name == "conv"
    assert node.nodes == ("conv",)
    assert node.inputs == {"input": "x"}
    assert node.outputs == {"output": "y"}
    assert list(node.constants) == [tensor.name for tensor in node.operator.tensors if tensor.name != "input"]
    assert not imported.skipped


def test_convolution_fields() -> None:
    model = convolution_model(per_channel=True, dtype="int8", pads=[0, 1, 2, 3], strides=[2, 1], dilations=[1, 2])
    (node,) = import_model(model).nodes
    assert node.operator == QuantizedLinearConvolution(
        input=Tensor((1, 4, 9, 10), "int8"),
        filter=Tensor((6, 4, 3, 3), "int8"),
        output_dtype="int8",
        bias=True,
        strides=(2, 1),
        dilations=(1, 2),
        start_padding=(0, 1),
        end_padding=(2, 3),
        filter_scale="per_channel",
        filter_zero_point="per_channel",
    )
    assert node.constants["filter_scale"].shape == (6,)
    assert node.constants["input_scale"].shape == ()


def test_output_type_follows_its_zero_point() -> None:
    model = convolution_model(dtype="uint8")
    weights = {"w": codes((6, 4, 3, 3), "int8"), "w_zp": number(0, "int8"), "y_zp": number(-3, "int8")}
    for tensor in list(model.graph.initializer):
        if tensor.name in weights:
            model.graph.initializer.remove(tensor)
    model.graph.initializer.extend(make_model([], {}, {}, weights, check=False).graph.initializer)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    (node,) = import_model(model).nodes
    assert isinstance(node.operator, QuantizedLinearConvolution)
    assert (node.operator.filter.dtype, node.operator.output_dtype) == ("int8", "int8")


def test_an_initializer_as_data_stays_a_run_time_input() -> None:
    model = convolution_model()
    del model.graph.input[:]
    data = codes((1, 4, 9, 10))
    model.graph.initializer.extend(make_model([], {}, {}, {"x": data}, check=False).graph.initializer)
    imported = check_against_other_engine(model, {}, 1)
    assert imported.nodes[0].inputs == {"input": "x"}


def test_run_time_parameters() -> None:
    model = convolution_model(per_channel=True)
    feeds = {"x": codes((1, 4, 9, 10))}
    kinds = {
        "x_scale": "float32",
        "w_scale": "float32",
        "w_zp": "uint8",
        "w": "uint8",
        "y_zp": "uint8",
        "bias": "int32",
    }
    values = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, dtype in kinds.items():
        feeds[name] = numpy_helper.to_array(values[name])
        model.graph.input.extend(make_model([], {name: (dtype, feeds[name].shape)}, {}, check=False).graph.input)
        model.graph.initializer.remove(values[name])
    imported = import_model(model)
    (node,) = imported.nodes
    assert set(node.inputs.values()) == set(feeds)
    assert set(node.constants) == {"input_zero_point", "output_scale"}
    result = run_onnx(imported, reference_bundle(imported), feeds)
    np.testing.assert_array_equal(result["y"], run_onnx(imported, {}, feeds)["y"])


def product_model(a: tuple[int, ...], b: tuple[int, ...], dtype: str = "uint8", **changed: Any) -> Any:
    constants = {
        "a_scale": scales(),
        "a_zp": codes((), dtype, 30),
        "b": codes(b, dtype),
        "b_scale": scales(),
        "b_zp": codes((), dtype, 30),
        "y_scale": number(0.2),
        "y_zp": codes((), dtype),
        **changed,
    }
    inputs = ["a", "a_scale", "a_zp", "b", "b_scale", "b_zp", "y_scale", "y_zp"]
    node = helper.make_node("QLinearMatMul", inputs, ["y"], name="product")
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    return make_model([node], {"a": (dtype, a)}, {"y": (dtype, shape)}, constants)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("a", "b"), [((5, 7), (7, 4)), ((2, 5, 7), (7, 4)), ((2, 3, 5, 7), (1, 3, 7, 4))])
def test_qlinear_matrix_product(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> None:
    imported = check_against_other_engine(product_model(a, b, dtype), {"a": codes(a, dtype)}, 1)
    assert isinstance(imported.nodes[0].operator, QuantizedLinearMatrixMultiply)


def test_matrix_product_per_column() -> None:
    model = product_model((5, 7), (7, 4), b_scale=scales(4), b_zp=codes((4,), "uint8"))
    (node,) = check_against_other_engine(model, {"a": codes((5, 7))}, 1).nodes
    assert isinstance(node.operator, QuantizedLinearMatrixMultiply)
    assert node.operator.b_scale == node.operator.b_zero_point == "per_column"


@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5, 1)])
def test_matrix_product_per_row(shape: tuple[int, ...]) -> None:
    rows = {"a_scale": scales(5).reshape(shape), "a_zp": codes(shape), "y_scale": scales(5).reshape(shape) + 1}
    model = product_model((5, 7), (7, 4), **rows, y_zp=codes(shape), b_scale=scales(4).reshape(1, 4))
    (node,) = import_model(model).nodes
    assert isinstance(node.operator, QuantizedLinearMatrixMultiply)
    fields = (node.operator.a_scale, node.operator.a_zero_point, node.operator.output_scale)
    assert fields == ("per_row", "per_row", "per_row")
    assert node.operator.b_scale == "per_column"
    np.testing.assert_array_equal(node.constants["a_scale"], rows["a_scale"].reshape(5))


def gemm_model(
    transposed: bool = False,
    bias: tuple[int, ...] | None = (4,),
    per_column: bool = False,
    constants: dict[str, Any] | None = None,
    inputs: dict[str, Any] | None = None,
    output: str = "uint8",
    **attributes: Any,
) -> Any:
    known = {
        "a_scale": scales(),
        "a_zp": codes((), "uint8", 30),
        "b": codes((4, 7) if transposed else (7, 4)),
        "b_scale": scales(4) if per_column else scales(),
        "b_zp": codes((4,) if per_column else (), "uint8", 30),
        "c": codes(bias or (), "int32", 4000),
        "y_scale": number(0.2),
        "y_zp": codes(()),
        **(constants or {}),
    }
    names = ["a", "a_scale", "a_zp", "b", "b_scale", "b_zp", "c" if bias is not None else "", "y_scale", "y_zp"]
    names = names if output == "uint8" else names[:7]
    node = helper.make_node(
        "QGemm", names, ["y"], name="gemm", domain="com.microsoft", transB=int(transposed), **attributes
    )
    known = {name: value for name, value in known.items() if name not in (inputs or {})}
    return make_model([node], {"a": ("uint8", (5, 7)), **(inputs or {})}, {"y": (output, (5, 4))}, known)


@pytest.mark.parametrize("bias", [None, (4,), (1, 4)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
def test_gemm(transposed: bool, bias: tuple[int, ...] | None, per_column: bool) -> None:
    model = gemm_model(transposed, bias, per_column)
    (node,) = check_against_other_engine(model, {"a": codes((5, 7))}, 1).nodes
    assert isinstance(node.operator, QuantizedLinearMatrixMultiply)
    assert node.operator.bias == (bias is not None)
    assert node.constants["b"].shape == (7, 4)
    assert node.constants["b"].flags.c_contiguous


def test_gemm_alpha_is_folded_into_the_scale() -> None:
    model = gemm_model(alpha=0.37, constants={"a_scale": number(0.013)})
    (node,) = check_against_other_engine(model, {"a": codes((5, 7))}, 1).nodes
    assert node.constants["a_scale"] == np.float32(0.37) * np.float32(0.013)


def test_gemm_with_run_time_factors() -> None:
    inputs = {"a_scale": ("float32", ()), "b": ("uint8", (7, 4)), "c": ("int32", (1, 4))}
    feeds = {"a": codes((5, 7)), "a_scale": scales(), "b": codes((7, 4)), "c": codes((1, 4), "int32", 4000)}
    (node,) = check_against_other_engine(gemm_model(bias=(1, 4), inputs=inputs), feeds, 1).nodes
    assert node.inputs == {"a": "a", "a_scale": "a_scale", "b": "b", "bias": "c"}


@pytest.mark.parametrize("zero_points", [(), ("x_zp",), ("x_zp", "w_zp")])
def test_integer_convolution(zero_points: tuple[str, ...]) -> None:
    node = helper.make_node("ConvInteger", ["x", "w", *zero_points], ["y"], name="conv", pads=[1, 0, 2, 1])
    constants = {"w": codes((6, 4, 3, 3)), "x_zp": number(7, "uint8"), "w_zp": number(9, "uint8")}
    model = make_model([node], {"x": ("uint8", (1, 4, 8, 8))}, {"y": ("int32", (1, 6, 9, 7))}, constants)
    (kernel,) = check_against_other_engine(model, {"x": codes((1, 4, 8, 8))}, 1).nodes
    assert isinstance(kernel.operator, ConvolutionInteger)
    assert kernel.operator.input_zero_point == ("per_tensor" if zero_points else None)


@pytest.mark.parametrize("zero_points", [{}, {"a_zp": ()}, {"a_zp": (), "b_zp": (4,)}, {"": None, "b_zp": ()}])
def test_integer_matrix_product(zero_points: dict[str, Any]) -> None:
    node = helper.make_node("MatMulInteger", ["a", "b", *zero_points], ["y"], name="product")
    constants = {name: codes(shape, "int8") for name, shape in zero_points.items() if name}
    constants["b"] = codes((7, 4), "int8")
    model = make_model([node], {"a": ("int8", (2, 5, 7))}, {"y": ("int32", (2, 5, 4))}, constants)
    (kernel,) = check_against_other_engine(model, {"a": codes((2, 5, 7), "int8")}, 1).nodes
    assert isinstance(kernel.operator, MatrixMultiplyInteger)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_quantize_and_dequantize(dtype: str, axis: int | None) -> None:
    size = {None: None, 1: 3, -1: 4}[axis]
    attributes = {} if axis is None else {"axis": axis}
    names = ["scale", "zero_point"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["codes"], name="quantize", **attributes),
        helper.make_node("DequantizeLinear", ["codes", *names], ["y"], name="dequantize", **attributes),
    ]
    constants = {"scale": scales(size), "zero_point": codes(() if size is None else (size,), dtype)}
    outputs = {"y": ("float32", (2, 3, 4)), "codes": (dtype, (2, 3, 4))}
    model = make_model(nodes, {"x": ("float32", (2, 3, 4))}, outputs, constants, opset=21)
    imported = check_against_other_engine(model, {"x": floats(2, 3, 4)}, 2)
    quantize, dequantize = (node.operator for node in imported.nodes)
    assert isinstance(quantize, QuantizeLinear)
    assert isinstance(dequantize, DequantizeLinear)
    assert quantize.output_dtype == dequantize.input.dtype == dtype
    assert quantize.axis == dequantize.axis == {None: 0, 1: 1, -1: 2}[axis]


def test_quantize_defaults_to_uint8_and_no_zero_point() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"])
    model = make_model([node], {"x": ("float32", ())}, {"y": ("uint8", ())}, {"scale": scales()})
    (kernel,) = check_against_other_engine(model, {"x": number(0.4)}, 1).nodes
    assert kernel.operator == QuantizeLinear(Tensor((), "float32"), "uint8", zero_point=None)
    assert kernel.name == "QuantizeLinear_0"


def test_quantize_to_the_type_of_the_attribute() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=TensorProto.INT16)
    constants = {"scale": np.array([0.01], np.float32)}
    model = make_model([node], {"x": ("float32", (3,))}, {"y": ("int16", (3,))}, constants, opset=21)
    (kernel,) = check_against_other_engine(model, {"x": floats(3)}, 1).nodes
    assert kernel.operator == QuantizeLinear(Tensor((3,), "float32"), "int16", zero_point=None)


def test_the_operators_of_com_microsoft() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["codes"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["y"], domain="com.microsoft"),
    ]
    constants = {"s": scales(), "z": number(9, "uint16")}
    model = make_model(nodes, {"x": ("float32", (2, 3))}, {"y": ("float32", (2, 3))}, constants)
    assert operators(check_against_other_engine(model, {"x": floats(2, 3)}, 2)) == [
        "QuantizeLinear",
        "DequantizeLinear",
    ]


@pytest.mark.parametrize("zero_point", [True, False])
def test_dequantize_int32_drops_its_zero_point(zero_point: bool) -> None:
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"] if zero_point else ["x", "s"], ["y"], axis=0)
    constants = {"s": scales(3), "z": np.zeros(3, np.int32)}
    model = make_model([node], {"x": ("int32", (3,))}, {"y": ("float32", (3,))}, constants)
    (kernel,) = check_against_other_engine(model, {"x": codes((3,), "int32")}, 1).nodes
    assert kernel.operator == DequantizeLinear(Tensor((3,), "int32"), "per_axis", None, axis=0)


def test_dynamic_quantize() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero_point"], name="dynamic")
    outputs = {"y": ("uint8", (2, 9)), "scale": ("float32", ()), "zero_point": ("uint8", ())}
    model = make_model([node], {"x": ("float32", (2, 9))}, outputs)
    (kernel,) = check_against_other_engine(model, {"x": floats(2, 9)}, 1).nodes
    assert kernel.operator == DynamicQuantizeLinear(Tensor((2, 9), "float32"))
    assert kernel.outputs == {"output": "y", "scale": "scale", "zero_point": "zero_point"}


def test_dynamic_quantization_chain() -> None:
    """As quantize_dynamic writes it: scale and zero point reach the product at run time."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["codes", "scale", "zero_point"], name="dynamic"),
        helper.make_node("MatMulInteger", ["codes", "b", "zero_point", "b_zp"], ["sums"], name="product"),
        helper.make_node("Cast", ["sums"], ["float"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "scale"], ["y"], name="mul"),
    ]
    constants = {"b": codes((9, 4)), "b_zp": number(5, "uint8")}
    model = make_model(nodes, {"x": ("float32", (2, 9))}, {"y": ("float32", (2, 4))}, constants)
    imported = check_against_other_engine(model, {"x": floats(2, 9)}, 2)
    assert imported.nodes[1].inputs == {"a": "codes", "a_zero_point": "zero_point"}
    assert [node.name for node in imported.skipped] == ["cast", "mul"]


def test_constant_nodes_and_identities_are_constants() -> None:
    scale = helper.make_node("Constant", [], ["scale0"], value_float=0.25, name="scale")
    nodes = [
        scale,
        helper.make_node("Identity", ["scale0"], ["scale1"], name="identity"),
        helper.make_node("QuantizeLinear", ["x", "scale1"], ["y"], name="quantize"),
    ]
    model = make_model(nodes, {"x": ("float32", (3,))}, {"y": ("uint8", (3,))})
    imported = check_against_other_engine(model, {"x": floats(3)}, 1)
    assert imported.nodes[0].constants["scale"] == np.float32(0.25)
    assert [node.reason for node in imported.skipped] == ["a constant", "not one of qcompile's operators"]


def test_an_overridable_initializer_is_no_constant() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], name="quantize")
    inputs = {"x": ("float32", (3,)), "scale": ("float32", ())}
    model = make_model([node], inputs, {"y": ("uint8", (3,))}, {"scale": number(0.5)})
    imported = import_model(model)
    assert imported.nodes[0].inputs == {"input": "x", "scale": "scale"}
    x = np.array([1, 2, 3], np.float32)
    bundle = reference_bundle(imported)
    assert run_onnx(imported, bundle, {"x": x})["y"].tolist() == [2, 4, 6]
    assert run_onnx(imported, bundle, {"x": x, "scale": number(1)})["y"].tolist() == [1, 2, 3]
    assert run_onnx(imported, {}, {"x": x, "scale": number(1)})["y"].tolist() == [1, 2, 3]


def test_names_are_unique_and_the_long_domain_is_known() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], [f"y{i}"], name=n) for i, n in enumerate(["a", "a", "", "a_1"])
    ]
    outputs = {f"y{index}": ("uint8", (3,)) for index in range(4)}
    model = make_model(nodes, {"x": ("float32", (3,))}, outputs, {"s": scales()})
    for item in (*model.graph.node, model.opset_import[0]):
        item.domain = "ai.onnx"
    imported = check_against_other_engine(model, {"x": floats(3)}, 4)
    assert [node.name for node in imported.nodes] == ["a_0", "a_1_2", "QuantizeLinear_2", "a_1"]


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 25])
def test_opsets(opset: int) -> None:
    if opset > 21 and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} does not run opset {opset}")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["y"]),
    ]
    constants = {"s": scales(), "z": number(3, "uint8")}
    model = make_model(nodes, {"x": ("float32", (4,))}, {"y": ("float32", (4,))}, constants, opset=opset)
    assert operators(check_against_other_engine(model, {"x": floats(4)}, 2)) == ["QuantizeLinear", "DequantizeLinear"]


@pytest.mark.parametrize("precision", [None, "FLOAT", "FLOAT16"])
def test_float16(precision: str | None) -> None:
    """QuantizeLinear and DequantizeLinear of float16, against ONNX's own reference."""
    attributes = {"precision": getattr(TensorProto, precision)} if precision else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["codes"], name="quantize", axis=1, **attributes),
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["y"], name="dequantize", axis=1),
    ]
    parameters = {"s": np.array([0.3, 0.007, 2.0], np.float16), "z": np.array([0, 100, 255], np.uint8)}
    model = make_model(nodes, {"x": ("float16", (4, 3))}, {"y": ("float16", (4, 3))}, parameters, opset=25)
    imported = import_model(model)
    assert [node.operator.name for node in imported.nodes] == [
        "quantize_f16_u8aa__4x3_axis1" + ("_precisionf32" if precision == "FLOAT" else ""),
        "dequantize_u8aa_f16__4x3_axis1",
    ]
    x = (np.random.default_rng(3).uniform(-1, 1, (4, 3)) * np.array([30, 0.7, 200])).astype(np.float16)
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    assert np.array_equal(run_onnx(imported, reference_bundle(imported), {"x": x})["y"], expected)


def test_no_elements() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], name="node")
    model = make_model([node], {"x": ("float32", (0, 4))}, {"y": ("uint8", (0, 4))}, {"s": number(0.5)})
    imported = import_model(model)
    result = run_onnx(imported, reference_bundle(imported), {"x": np.zeros((0, 4), np.float32)})
    assert result["y"].shape == (0, 4)
