"""Float operators between DequantizeLinear and QuantizeLinear: when they become one kernel, and when not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from qcompile.frontends.onnx import ImportedModel, import_model, run_onnx
from qcompile.spec import QuantizedLinearConvolution, QuantizedLinearMatrixMultiply

from .support import codes, floats, make_model, number, operators, reasons, reference_bundle, scales

SHAPES = {
    "Conv": ((1, 4, 6, 6), (5, 4, 3, 3), (1, 5, 4, 4)),
    "MatMul": ((3, 7), (7, 5), (3, 5)),
    "Gemm": ((3, 7), (7, 5), (3, 5)),
}


class Group:
    """A QDQ group whose parts the tests change before they build the model."""

    def __init__(self, op_type: str = "Conv", bias: bool = True, per_channel: bool = True, dtype: str = "uint8"):
        x, w, y = SHAPES[op_type]
        bias = bias and op_type != "MatMul"
        count = 5 if per_channel else None
        axis = 0 if op_type == "Conv" else 1
        w_scale = scales(count)
        self.inputs: dict[str, Any] = {"x": (dtype, x)}
        self.outputs: dict[str, Any] = {"y": (dtype, y)}
        self.constants: dict[str, Any] = {
            "x_s": number(0.02),
            "x_z": number(117 if dtype == "uint8" else -3, dtype),
            "w": codes(w, "int8", 127),
            "w_s": w_scale,
            "w_z": np.zeros(w_scale.shape, "int8"),
            "b": codes((5,), "int32", 2000),
            "b_s": np.float32(0.02) * w_scale,
            "b_z": np.zeros(w_scale.shape, "int32"),
            "y_s": number(0.05),
            "y_z": number(100 if dtype == "uint8" else 5, dtype),
        }
        self.attributes: dict[str, Any] = {}
        self.weight_attributes: dict[str, Any] = {"axis": axis} if per_channel else {}
        self.bias_attributes: dict[str, Any] = {"axis": 0} if per_channel else {}
        self.op_type, self.bias, self.opset = op_type, bias, 13
        self.activation: list[Any] = []
        self.more: list[Any] = []

    def model(self) -> Any:
        main_inputs = ["xf", "wf", *(["bf"] if self.bias else [])]
        main_output = "a" if self.activation else "f"
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "x_s", "x_z"], ["xf"], name="dx"),
            helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["wf"], name="dw", **self.weight_attributes),
            helper.make_node("DequantizeLinear", ["b", "b_s", "b_z"], ["bf"], name="db", **self.bias_attributes),
            helper.make_node(self.op_type, main_inputs, [main_output], name="main", **self.attributes),
            *self.activation,
            helper.make_node("QuantizeLinear", ["f", "y_s", "y_z"], ["y"], name="qy"),
            *self.more,
        ]
        produced = {name for node in nodes for name in node.output}
        nodes = [node for node in nodes if node.name != "db" or (self.bias and "bf" not in self.constants)]
        nodes = [node for node in nodes if node.output[0] not in self.inputs]
        constants = {name: value for name, value in self.constants.items() if name not in self.inputs}
        assert "y" in produced
        return make_model(nodes, self.inputs, self.outputs, constants, opset=self.opset)

    def run(self) -> ImportedModel:
        """The fused integers may differ by one code from the float operators, and do seldom."""
        imported = import_model(self.model())
        dtype, shape = self.inputs["x"]
        feeds = {"x": codes(shape, dtype)}
        ours = run_onnx(imported, reference_bundle(imported), feeds)
        theirs = run_onnx(imported, {}, feeds)
        for name in theirs:
            difference = np.abs(ours[name].astype(np.float64) - theirs[name].astype(np.float64))
            assert difference.max() <= 1
            assert np.mean(difference > 0) < 0.02
        return imported

    def reason(self) -> str:
        """Why the main node is not fused; the nodes around it then are kernels of their own."""
        imported = import_model(self.model())
        kernels = operators(imported)
        assert "QuantizedLinearConvolution" not in kernels
        assert "QuantizedLinearMatrixMultiply" not in kernels
        return reasons(imported)["main"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("op_type", ["Conv", "MatMul", "Gemm"])
def test_a_group_is_one_kernel(op_type: str, bias: bool, per_channel: bool, dtype: str) -> None:
    imported = Group(op_type, bias, per_channel, dtype).run()
    (node,) = imported.nodes
    has_bias = bias and op_type != "MatMul"
    expected = QuantizedLinearConvolution if op_type == "Conv" else QuantizedLinearMatrixMultiply
    assert isinstance(node.operator, expected)
    assert node.operator.bias == has_bias
    assert node.operator.activation is None
    assert node.name == "main"
    assert node.nodes == ("dx", "dw", *(["db"] if has_bias else []), "main", "qy")
    assert list(node.inputs.values()) == ["x"]
    assert node.outputs == {"output": "y"}
    assert not imported.skipped


def test_gemm_with_transposed_weights() -> None:
    group = Group("Gemm")
    group.constants["w"] = codes((5, 7), "int8", 127)
    group.attributes["transB"] = 1
    group.weight_attributes["axis"] = 0
    group.constants["b"] = codes((1, 5), "int32", 2000)
    group.bias_attributes["axis"] = 1
    (node,) = group.run().nodes
    np.testing.assert_array_equal(node.constants["b"], group.constants["w"].T)
    assert node.constants["bias"].shape == (5,)


def test_negative_weight_axis_and_batches() -> None:
    group = Group("MatMul")
    group.inputs["x"], group.outputs["y"] = ("uint8", (2, 3, 7)), ("uint8", (2, 3, 5))
    group.weight_attributes["axis"] = -1
    (node,) = group.run().nodes
    assert isinstance(node.operator, QuantizedLinearMatrixMultiply)
    assert node.operator.b_scale == "per_column"


def clip(low: float | None, high: float | None, opset: int, group: Group) -> list[Any]:
    if opset < 11:
        bounds = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
        return [helper.make_node("Clip", ["a"], ["f"], name="clip", **bounds)]
    group.constants.update({name: number(value) for name, value in (("lo", low), ("hi", high)) if value is not None})
    names = ["a", "lo" if low is not None else "", "hi" if high is not None else ""]
    return [helper.make_node("Clip", names, ["f"], name="clip")]


CLIPS: dict[str, tuple[float | None, float | None, tuple[int, int] | None]] = {
    "both": (-1.0, 2.5, (80, 150)),
    "low": (0.0, None, (100, 255)),
    "high": (None, 0.5, (0, 110)),
    "none": (None, None, None),
    "outside the codes": (-100.0, 100.0, None),
    "rounded, ties to even": (0.125, 0.175, (102, 104)),
    "minimum above maximum": (2.0, 1.0, (120, 120)),
    "infinite": (-float("inf"), float("inf"), None),
}


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize("case", CLIPS)
def test_clip_becomes_a_clamp_of_codes(case: str, opset: int) -> None:
    group = Group(per_channel=False)
    low, high, expected = CLIPS[case]
    group.opset = opset
    group.activation = clip(low, high, opset, group)
    (node,) = (import_model(group.model()) if case.startswith("minimum") else group.run()).nodes
    assert isinstance(node.operator, QuantizedLinearConvolution)
    assert node.operator.activation == expected
    assert node.nodes == ("dx", "dw", "db", "main", "clip", "qy")


@pytest.mark.parametrize(("zero_point", "expected"), [(0, None), (100, (100, 255)), (255, (255, 255))])
def test_relu_becomes_a_clamp_at_the_zero_point(zero_point: int, expected: Any) -> None:
    group = Group("Gemm")
    group.constants["y_z"] = number(zero_point, "uint8")
    group.activation = [helper.make_node("Relu", ["a"], ["f"], name="relu")]
    (node,) = group.run().nodes
    assert isinstance(node.operator, QuantizedLinearMatrixMultiply)
    assert node.operator.activation == expected


def test_run_time_parameters_of_the_output() -> None:
    group = Group()
    group.inputs["y_s"], group.inputs["y_z"] = ("float32", ()), ("uint8", ())
    imported = import_model(group.model())
    assert imported.nodes[0].inputs == {"input": "x", "output_scale": "y_s", "output_zero_point": "y_z"}
    group.activation = [helper.make_node("Relu", ["a"], ["f"], name="relu")]
    assert group.reason() == "a Relu follows, and the output's parameters are run-time values"


def test_run_time_weights() -> None:
    group = Group(bias=False)
    group.inputs["w"] = ("int8", (5, 4, 3, 3))
    assert import_model(group.model()).nodes[0].inputs == {"input": "x", "filter": "w"}


def test_a_shared_dequantizer_vanishes_into_both_groups() -> None:
    group = Group()
    second = Group()
    group.more = [
        helper.make_node("Conv", ["xf", "wf"], ["f2"], name="second"),
        helper.make_node("QuantizeLinear", ["f2", "y_s", "y_z"], ["y2"], name="qy2"),
    ]
    group.outputs["y2"] = second.outputs["y"]
    imported = group.run()
    assert [node.nodes for node in imported.nodes] == [
        ("dx", "dw", "db", "main", "qy"),
        ("dx", "dw", "second", "qy2"),
    ]


@pytest.mark.parametrize("use", ["another node", "output"])
def test_a_dequantizer_that_others_need_is_a_kernel_too(use: str) -> None:
    group = Group()
    group.outputs["other"] = ("float32", (1, 4, 6, 6))
    if use == "another node":
        group.more = [helper.make_node("Neg", ["xf"], ["other"], name="neg")]
    else:
        group.more = [helper.make_node("Identity", ["x"], ["unused"], name="identity")]
        group.outputs["xf"] = group.outputs.pop("other")
    imported = group.run()
    assert [node.nodes for node in imported.nodes] == [("dx",), ("dw", "db", "main", "qy")]


def test_a_dequantizer_used_inside_a_subgraph_stays() -> None:
    group = Group()
    branch = helper.make_graph(
        [helper.make_node("Neg", ["xf"], ["inner"])], "branch", [], [helper.make_tensor_value_info("inner", 1, None)]
    )
    group.inputs["flag"] = ("bool", ())
    group.more = [helper.make_node("If", ["flag"], ["other"], name="if", then_branch=branch, else_branch=branch)]
    group.outputs["other"] = ("float32", (1, 4, 6, 6))
    imported = import_model(group.model())
    assert [node.nodes for node in imported.nodes] == [("dx",), ("dw", "db", "main", "qy")]
    assert reasons(imported) == {"if": "not one of qcompile's operators; the graphs inside it are not searched"}
    feeds = {"x": codes((1, 4, 6, 6)), "flag": np.array(True)}
    result = run_onnx(imported, reference_bundle(imported), feeds)
    assert result.by_others == {"if": "onnxruntime"}
    np.testing.assert_array_equal(result["other"], run_onnx(imported, {}, feeds)["other"])


def test_a_missing_group_is_run_by_the_other_engine_with_the_nodes_it_shares() -> None:
    group = Group()
    group.more = [
        helper.make_node("Conv", ["xf", "wf"], ["f2"], name="second"),
        helper.make_node("QuantizeLinear", ["f2", "y_s", "y_z"], ["y2"], name="qy2"),
    ]
    group.outputs["y2"] = group.outputs["y"]
    imported = import_model(group.model())
    bundle = reference_bundle(imported)
    del bundle["second"]
    result = run_onnx(imported, bundle, {"x": codes((1, 4, 6, 6))})
    assert result.by_kernels == ("main",)
    assert set(result.by_others) == {"dx", "dw", "second", "qy2"}


def changed(
    inputs: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    attributes: dict[str, Any] | None = None,
    weights: dict[str, Any] | None = None,
    activation: list[Any] | None = None,
    more: list[Any] | None = None,
    bias: bool = True,
    opset: int = 13,
    **constants: Any,
) -> Any:
    """A change of a group: of its graph, of attributes of the main node or the weights' one, and of constants."""

    def change(group: Group) -> None:
        group.inputs.update(inputs or {})
        group.outputs.update(outputs or {})
        group.attributes.update(attributes or {})
        group.weight_attributes.update(weights or {})
        group.activation, group.more = activation or [], more or []
        group.bias, group.opset = group.bias and bias, opset
        group.constants.update(constants)

    return change


def _bias_scale(group: Group, scale: Any) -> None:
    group.constants["b_s"] = scale(group.constants["b_s"])


FLOAT_OUTPUT = ("float32", SHAPES["MatMul"][2])

#: Each must not be fused: case -> (operator, change, reason).
UNFUSED: dict[str, tuple[str, Any, str]] = {
    "float x": (
        "Conv",
        changed(inputs={"xf": ("float32", (1, 4, 6, 6))}),
        "its input 'xf' does not come from DequantizeLinear",
    ),
    "float w": (
        "Conv",
        changed(inputs={"wf": ("float32", (5, 4, 3, 3))}),
        "its filter 'wf' does not come from DequantizeLinear",
    ),
    "float bias input": (
        "Conv",
        changed(inputs={"bf": ("float32", (5,))}),
        "its bias 'bf' does not come from DequantizeLinear",
    ),
    "float bias": ("Conv", changed(bf=floats(5)), "its bias 'bf' is a float initializer"),
    "int8 bias": ("Conv", changed(b=codes((5,), "int8"), b_z=np.zeros(5, "int8")), "'b' is int8; accepted: int32"),
    "bias scale": (
        "Conv",
        lambda group: _bias_scale(group, lambda scale: np.nextafter(scale, np.float32(1))),
        "the scale of its bias is not exactly input_scale * filter_scale",
    ),
    "Gemm bias scale": (
        "Gemm",
        lambda group: _bias_scale(group, lambda scale: scale * 2),
        "the scale of its bias is not exactly a_scale * b_scale",
    ),
    "bias zero point": ("Conv", changed(b_z=np.ones(5, "int32")), "'b_z' of int32 codes is not constantly 0"),
    "run-time scale": ("Conv", changed(inputs={"x_s": ("float32", ())}), "the scale of its bias cannot be compared"),
    "several uses": (
        "MatMul",
        changed(more=[helper.make_node("Neg", ["f"], ["other"])], outputs={"other": FLOAT_OUTPUT}),
        "'f' is used 2 times and is needed in float32",
    ),
    "an output": (
        "MatMul",
        changed(outputs={"f": FLOAT_OUTPUT}),
        "'f' is an output of the model and is needed in float32",
    ),
    "an activation that is an output": (
        "MatMul",
        changed(outputs={"f": FLOAT_OUTPUT}, activation=[helper.make_node("Relu", ["a"], ["f"])]),
        "'f' is an output of the model and is needed in float32",
    ),
    "another activation": (
        "Conv",
        changed(activation=[helper.make_node("Tanh", ["a"], ["f"])]),
        "'a' goes to Tanh, not to QuantizeLinear",
    ),
    "run-time Clip": (
        "Conv",
        changed(inputs={"lo": ("float32", ())}, activation=[helper.make_node("Clip", ["a", "lo"], ["f"])]),
        "a Clip follows, whose min is no constant of one float32 number",
    ),
    "NaN bound": (
        "Conv",
        changed(activation=[helper.make_node("Clip", ["a", "lo"], ["f"])], lo=number(float("nan"))),
        "Clip has a bound that is not a number",
    ),
    "int16 x": (
        "MatMul",
        changed(inputs={"x": ("int16", (3, 7))}, x_z=number(0, "int16"), opset=21),
        "'x' is int16; accepted: int8, uint8",
    ),
    "int16 output": (
        "MatMul",
        changed(outputs={"y": ("int16", (3, 5))}, y_z=number(0, "int16"), opset=21),
        "its output is quantized to int16",
    ),
    "x per axis": (
        "Conv",
        changed(x_s=scales(4), x_z=np.zeros(4, "uint8"), bias=False),
        "'x_s' (input_scale) has the shape (4,); accepted: one element",
    ),
    "output per axis": (
        "Conv",
        changed(y_s=scales(5), y_z=np.zeros(5, "uint8")),
        "'y_s' (output_scale) has the shape (5,); accepted: one element",
    ),
    "convolution weights along axis 1": (
        "Conv",
        changed(weights={"axis": 1}, w_s=scales(4), w_z=np.zeros(4, "int8"), bias=False),
        "its filter is quantized along axis 1; accepted: axis 0",
    ),
    "product weights along axis 0": (
        "MatMul",
        changed(weights={"axis": 0}, w_s=scales(7), w_z=np.zeros(7, "int8")),
        "its b is quantized along axis 0; accepted: axis 1",
    ),
    "alpha": ("Gemm", changed(attributes={"alpha": 0.5}), "alpha is 0.5; accepted: 1"),
    "beta": ("Gemm", changed(attributes={"beta": 0.5}), "beta is 0.5; accepted: 1"),
    "transA": (
        "Gemm",
        changed(attributes={"transA": 1}, inputs={"x": ("uint8", (7, 3))}),
        "transA is 1; accepted: 0",
    ),
    "transB at run time": (
        "Gemm",
        changed(attributes={"transB": 1}, inputs={"w": ("int8", (5, 7))}, weights={"axis": 0}, bias=False),
        "transB is 1 and b is not constant",
    ),
    "bias per row": (
        "Gemm",
        changed(
            b=codes((3, 1), "int32", 9),
            b_s=np.full(1, np.float32(0.02) * np.float32(0.01)),
            b_z=np.zeros(1, "int32"),
            w_s=np.full(1, np.float32(0.01)),
            w_z=np.zeros(1, "int8"),
        ),
        "C has the shape (3, 1); accepted: (5,) or (1, 5)",
    ),
    "a vector": (
        "MatMul",
        changed(inputs={"x": ("uint8", (7,))}, outputs={"y": ("uint8", (5,))}),
        "a has the shape (7,); accepted: 2 to 4 axes",
    ),
    "bad scale": ("MatMul", changed(x_s=number(float("nan"))), "a_scale has a value that is no scale."),
}


@pytest.mark.parametrize("case", UNFUSED)
def test_unfused(case: str) -> None:
    op_type, change, expected = UNFUSED[case]
    group = Group(op_type)
    change(group)
    assert expected in group.reason()


def test_an_unfused_group_still_runs() -> None:
    group = Group()
    group.constants["b_s"] = group.constants["b_s"] * 2
    imported = group.run()
    assert [node.name for node in imported.nodes] == ["dx", "dw", "db", "qy"]
    assert imported.nodes[1].inputs == {"input": "w"}


def test_the_quantizers_scale_is_not_its_data() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["f"], name="main"),
        helper.make_node("Reshape", ["f", "shape"], ["scale"], name="reshape"),
        helper.make_node("QuantizeLinear", ["data", "scale"], ["y"], name="quantize"),
    ]
    constants = {"s": scales(), "w": codes((3, 1)), "shape": np.array([], np.int64)}
    inputs = {"x": ("uint8", (1, 3)), "data": ("float32", (4,))}
    imported = import_model(make_model(nodes, inputs, {"y": ("uint8", (4,))}, constants))
    assert reasons(imported)["main"] == "'f' goes to Reshape, not to QuantizeLinear"
    assert imported.nodes[-1].inputs == {"input": "data", "scale": "scale"}
